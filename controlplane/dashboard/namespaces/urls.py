"""The URLs of namespaces."""

from django.urls import path

from controlplane.dashboard.namespaces import linting, misses, namespaces, operations, pins, purges

NAMESPACE = "orgs/<slug:org>/namespaces/<slug:ns>"

urlpatterns = [
    path(NAMESPACE, namespaces.namespace, name="namespace"),
    path(f"{NAMESPACE}/now", namespaces.namespace_now, name="namespace-now"),
    path(f"{NAMESPACE}/evictions", namespaces.evictions, name="namespace-evictions"),
    path(f"{NAMESPACE}/edit", namespaces.namespace_edit, name="namespace-edit"),
    path(f"{NAMESPACE}/pins", pins.pins, name="pins"),
    path(f"{NAMESPACE}/pins/<uuid:pin>/end", pins.pin_end, name="pin-end"),
    path(f"{NAMESPACE}/purge", purges.namespace_purge, name="purge"),
    path("orgs/<slug:org>/purge", purges.organisation_purge, name="organisation-purge"),
    path("operations/<uuid:operation>", operations.operation, name="operation"),
    path("operations/<uuid:operation>/now", operations.operation_now, name="operation-now"),
    path("orgs/<slug:org>/misses", misses.misses, name="misses"),
    path("orgs/<slug:org>/lint", linting.lint, name="lint"),
]
