"""The demo's three customers: invented, each with a different use of the cache. Data only."""

from dataclasses import dataclass
from typing import Any

from tenants.bounds import Bounds, KvDtypes, SecondsRange, TtlModes

Said = tuple[str, dict[str, Any]]  # a revision: its note and its policy values


@dataclass(frozen=True, slots=True)
class DemoNamespace:
    slug: str
    name: str
    revisions: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class DemoOrganisation:
    slug: str
    name: str
    revisions: tuple[Said, ...]
    namespaces: tuple[DemoNamespace, ...]  # in addition to `default`, which every organisation has
    bounds: Bounds | None = None

    @property
    def email(self) -> str:
        return f"admin@{self.slug}.example"


ACME = DemoOrganisation(
    slug="acme",
    name="Acme Support",
    revisions=(("People answer a chat within minutes, not seconds", {"ttl_seconds": 600}),),
    namespaces=(
        DemoNamespace(
            "support-bot",
            "Support chat",
            (
                (
                    "The long system prompt stays through a quiet quarter of an hour, and nobody may evict it",
                    {"ttl_seconds": 900, "reserved_share": 0.15, "weight": 2.0},
                ),
            ),
        ),
        DemoNamespace(
            "contracts-1m",
            "Questions about long contracts",
            (
                (
                    "A million tokens fit in int4 only; an hour is how long somebody reads one contract",
                    {
                        "ttl_seconds": 3600,
                        "ttl_mode": "absolute",
                        "kv_dtype": "int4",
                        "request_kv_dtypes": ["fp8"],
                        "limit_share": 0.4,
                    },
                ),
            ),
        ),
    ),
)
GLOBEX = DemoOrganisation(
    slug="globex",
    name="Globex Engineering",
    revisions=(
        (
            "A coding session lasts a working day, with pauses",
            {"ttl_seconds": 1800, "max_age_seconds": 43_200, "request_kv_dtypes": ["int8", "int4"]},
        ),
    ),
    namespaces=(
        DemoNamespace(
            "agents",
            "Coding agents",
            (
                ("Long enough for any build", {"ttl_seconds": 7200}),
                ("Two hours kept what an hour does not; more weight instead", {"ttl_seconds": 3600, "weight": 2.0}),
            ),
        ),
        DemoNamespace(
            "review",
            "Code review",
            (("A diff is long and asked about twice: a smaller format leaves more room", {"kv_dtype": "k8v4"}),),
        ),
        DemoNamespace(
            "experiments",
            "",
            (
                (
                    "Try formats here without crowding out the agents",
                    {
                        "ttl_seconds": 300,
                        "limit_share": 0.2,
                        "request_kv_dtypes": ["bf16", "int8", "k8v4", "int4"],
                    },
                ),
            ),
        ),
    ),
    bounds=Bounds(
        ttl_seconds=SecondsRange(min=60, max=7200),
        ttl_mode=TtlModes(allowed=["sliding", "absolute"]),
        kv_dtype=KvDtypes(allowed=["fp8", "int8", "k8v4", "int4"]),
        request_kv_dtypes=KvDtypes(allowed=["bf16", "fp8", "int8", "k8v4", "int4"]),
    ),
)
INITECH = DemoOrganisation(
    slug="initech",
    name="Initech Reports",
    revisions=(("Batches run from 22:00 to 06:00", {"ttl_seconds": 28_800, "ttl_mode": "absolute", "weight": 0.5}),),
    namespaces=(
        DemoNamespace(
            "nightly",
            "Nightly summaries",
            (
                (
                    "At most half of a pool",
                    {"kv_dtype": "int8", "limit_share": 0.5},
                ),
            ),
        ),
        DemoNamespace(
            "evals",
            "Regression runs",
            (("Each prompt must be computed, or its timing says nothing", {"prefix_caching": False}),),
        ),
    ),
)
ORGANISATIONS = (ACME, GLOBEX, INITECH)
