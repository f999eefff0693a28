"""The URLs of the policy pages, the same for each of the three levels."""

from collections.abc import Iterator

from django.urls import URLPattern, path

from controlplane.dashboard.policies import revisions, views, what_if

NAMESPACE = "orgs/<slug:org>/namespaces/<slug:ns>"


def _level(kind: str, prefix: str, revisions_at: str) -> Iterator[URLPattern]:
    yield path(f"{prefix}/policy", views.policy, name=f"{kind}-policy")
    yield path(f"{prefix}/policy/check", views.policy_check, name=f"{kind}-policy-check")
    yield path(f"{prefix}/{revisions_at}", revisions.revisions, name=f"{kind}-revisions")


urlpatterns: list[URLPattern] = [
    *_level("namespace", NAMESPACE, "revisions"),
    *_level("organisation", "orgs/<slug:org>", "policy/revisions"),
    *_level("fleet", "fleet", "policy/revisions"),
    path(f"{NAMESPACE}/policy/what-if", what_if.policy_what_if, name="policy-what-if"),
    path(f"{NAMESPACE}/policy/what-if/now", what_if.policy_what_if_now, name="policy-what-if-now"),
]
