"""Every page of the web UI, and for whom it is: tests of access, of accessibility and of pictures go through this list.

A page that is not in it fails the build (tests/integration/test_page_access.py).
"""

from dataclasses import dataclass
from typing import Literal

Audience = Literal["everybody", "members", "operators", "outside"]
Kind = Literal["page", "part", "deed"]


@dataclass(frozen=True, slots=True)
class Page:
    """`audience`: of an organisation's pages its members and operators; "outside" is who is not signed in. A part is
    swapped in by HTMX, a deed is only sent to. `arguments` as they are in the tests' stack and database: acme, default.
    """

    view: str
    audience: Audience
    kind: Kind = "page"
    arguments: tuple[str, ...] = ()


NOWHERE = "00000000-0000-4000-8000-000000000000"
PAGES = (
    Page("home", "everybody"),
    Page("parts", "operators", "part"),
    Page("published", "everybody", "part", (NOWHERE,)),
    Page("namespace-ttl", "members", "deed", ("acme", "default")),
    Page("fleet-ttl", "operators", "deed"),
    Page("fleet", "operators"),
    Page("fleet-now", "operators", "part"),
    Page("sign-in", "outside"),
    Page("sign-out", "everybody", "deed"),
    Page("password", "everybody"),
    Page("theme", "outside", "deed"),
    Page("invitation", "outside", "page", ("spent",)),
    Page("reset", "outside", "page", ("spent",)),
    # organisations
    Page("organisations", "operators"),
    Page("organisation-new", "operators"),
    Page("organisation", "members", "page", ("acme",)),
    Page("organisation-delete", "operators", "page", ("acme",)),
    Page("keys", "members", "page", ("acme",)),
    Page("members", "members", "page", ("acme",)),
    Page("limits", "members", "page", ("acme",)),
    Page("organisation-audit", "members", "page", ("acme",)),
    # policies
    Page("namespace-policy", "members", "page", ("acme", "default")),
    Page("namespace-policy-check", "members", "part", ("acme", "default")),
    Page("namespace-revisions", "members", "page", ("acme", "default")),
    Page("policy-what-if", "members", "page", ("acme", "default")),
    Page("policy-what-if-now", "members", "part", ("acme", "default")),
    Page("organisation-policy", "members", "page", ("acme",)),
    Page("organisation-policy-check", "members", "part", ("acme",)),
    Page("organisation-revisions", "members", "page", ("acme",)),
    Page("fleet-policy", "operators"),
    Page("fleet-policy-check", "operators", "part"),
    Page("fleet-revisions", "operators"),
    # caches
    Page("namespace", "members", "page", ("acme", "default")),
    Page("namespace-now", "members", "part", ("acme", "default")),
    Page("namespace-evictions", "members", "part", ("acme", "default")),
    Page("namespace-edit", "members", "page", ("acme", "default")),
    Page("pins", "members", "page", ("acme", "default")),
    Page("pin-end", "members", "page", ("acme", "default", NOWHERE)),
    Page("purge", "members", "page", ("acme", "default")),
    Page("organisation-purge", "members", "page", ("acme",)),
    Page("operation", "everybody", "page", (NOWHERE,)),
    Page("operation-now", "everybody", "part", (NOWHERE,)),
    Page("misses", "members", "page", ("acme",)),
    Page("lint", "members", "page", ("acme",)),
    # fleets
    Page("join-tokens", "operators"),
    Page("agent", "operators", "page", ("agent-1",)),
    Page("agent-now", "operators", "part", ("agent-1",)),
    Page("agent-deed", "operators", "deed", ("agent-1", "drain")),
    Page("rollouts", "operators"),
    Page("rollout", "operators", "page", (NOWHERE,)),
    Page("rollout-now", "operators", "part", (NOWHERE,)),
    Page("rollout-deed", "operators", "deed", (NOWHERE, "pause")),
    # numbers
    Page("overview-now", "operators", "part"),
    Page("overview-watched", "operators", "part"),
    Page("analytics", "members", arguments=("acme",)),
    Page("analytics-now", "members", "part", ("acme",)),
    Page("stats-csv", "members", "page", ("acme",)),
    Page("stats-parts-csv", "members", "page", ("acme",)),
    # watching
    Page("calculator", "everybody"),
    Page("alerts", "everybody"),
    Page("alerts-now", "everybody", "part"),
    Page("alert", "everybody", "page", (NOWHERE,)),
    Page("alert-rules", "everybody"),
    Page("alert-rule", "everybody", "page", (NOWHERE,)),
    Page("audit", "operators"),
    Page("audit-export", "operators"),
    Page("settings", "operators"),
    Page("settings-prices", "operators"),
    Page("settings-price-remove", "operators"),
    Page("settings-tokens", "operators"),
    Page("settings-groups", "operators"),
    Page("settings-quality", "operators"),
    # starting
    Page("start", "members", "page", ("acme",)),
)
DEMO_PAGES = (
    Page("demo-traffic", "operators", "deed"),
    Page("five-minutes", "operators"),
    Page("experiment-now", "operators", "part", ("hit",)),
)
ALL_PAGES = (*PAGES, *DEMO_PAGES)  # of a demonstration
ALL_URLS = "tests.web.demonstration"  # where they are
