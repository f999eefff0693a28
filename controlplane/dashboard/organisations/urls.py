"""The URLs of the organisations."""

from django.urls import path

from controlplane.dashboard.organisations import deleting, front, keys, limits, listing, members, trails

urlpatterns = [
    path("orgs", listing.organisations, name="organisations"),
    path("new-organisation", listing.organisation_new, name="organisation-new"),
    path("orgs/<slug:org>", front.organisation, name="organisation"),
    path("orgs/<slug:org>/delete", deleting.organisation_delete, name="organisation-delete"),
    path("orgs/<slug:org>/keys", keys.keys, name="keys"),
    path("orgs/<slug:org>/members", members.members, name="members"),
    path("orgs/<slug:org>/limits", limits.limits, name="limits"),
    path("orgs/<slug:org>/audit", trails.organisation_audit, name="organisation-audit"),
]
