"""The URLs of the web UI."""

from django.urls import include, path

from controlplane.dashboard.accounts import links
from controlplane.dashboard.home import ttls, views
from controlplane.dashboard.policies import published

SUBJECTS = (
    "organisations",
    "policies",
    "namespaces",
    "fleet",
    "rollouts",
    "overview",
    "analytics",
    "alerts",
    "audit",
    "calculator",
    "settings",
    "experiments",
)

urlpatterns = [
    path("", views.home, name="home"),
    path("overview/parts", views.parts, name="parts"),
    path("published/<uuid:rollout>", published.published, name="published"),
    path("orgs/<slug:org>/namespaces/<slug:ns>/ttl", ttls.namespace_ttl, name="namespace-ttl"),
    path("fleet/ttl", ttls.fleet_ttl, name="fleet-ttl"),
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("account/password", views.password, name="password"),
    path("account/theme", views.theme, name="theme"),
    path("invitation/<str:token>", links.invitation, name="invitation"),
    path("reset/<str:token>", links.reset, name="reset"),
    *(path("", include(f"controlplane.dashboard.{subject}.urls")) for subject in SUBJECTS),
]
