"""The URLs of the audit trail."""

from django.urls import URLPattern, path

from controlplane.dashboard.audit import audit

urlpatterns: list[URLPattern] = [
    path("audit", audit.audit, name="audit"),
    path("audit/export", audit.audit_export, name="audit-export"),
]
