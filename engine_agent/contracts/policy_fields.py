"""Every policy field, in one list from which both sides derive theirs. Standard library.

The control plane derives the schema with its validation, bounds, forms, previews, labels and the CLI's help; an agent
derives its checks, defaults and declared enforcement. `docs/policies.md` is generated from it. The block manager's code
defines what each field does: it reads `engine_agent/cache/policy.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

Level = Literal["fleet", "organisation", "namespace"]
Kind = Literal["switch", "seconds", "choice", "format", "formats", "share", "number"]
Enforcer = Literal["block manager", "backend", "formats"]
TtlMode = Literal["sliding", "absolute"]
Offload = Literal["none", "host", "disk"]

LEVELS: tuple[str, ...] = get_args(Level)  # outermost first
DAY_SECONDS = 86_400
WEEK_SECONDS = 604_800
YEAR_SECONDS = 31_536_000
UNITS: Mapping[Kind, str] = {"seconds": "s, min, h, d", "share": "% of each pool"}


@dataclass(frozen=True, slots=True)
class Consequence:
    """A warning in previews. The message may use `{before}`, `{after}`, `{lost}` (of a list) and `{where}`."""

    when: Literal["changed", "lowered", "off", "shortened"]
    code: str
    title: str
    message: str

    def follows(self, before: Any, after: Any) -> bool:
        """Return whether the change has this consequence. null means no bound, which is above any number."""
        match self.when:
            case "lowered":
                return after is not None and (before is None or after < before)
            case "off":
                return after is False
            case "shortened":
                return bool({*before} - {*after})
        return True

    def words(self, before: Any, after: Any, where: str) -> str:
        lost = ", ".join(sorted({*before} - {*after})) if self.when == "shortened" else ""
        return self.message.format(before=before, after=after, lost=lost, where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """A policy field. `default` applies until the fleet publishes its own.

    `help` is for people, `agent` describes what an agent does with the field.
    """

    name: str
    label: str
    kind: Kind
    default: Any
    help: str
    agent: str
    enforcer: Enforcer  # "backend": each declares its own grade; "formats": follows from the formats it reports
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    is_nullable: bool = False  # null: without a bound
    at_most: str | None = None  # the field whose value it must not exceed
    levels: tuple[Level, ...] = get_args(Level)
    members_may_change: bool = False  # unless an operator sets other bounds for their organisation
    members_maximum: float | None = None  # if less than `maximum`
    takes_from_others: bool = False
    is_graded_by_value: bool = False
    consequences: tuple[Consequence, ...] = ()

    @property
    def unit(self) -> str:
        return UNITS.get(self.kind, "")

    @property
    def values(self) -> str:
        """Return the allowed values as text, for help and tables."""
        match self.kind:
            case "switch":
                return "true, false"
            case "choice":
                return ", ".join(self.choices)
            case "format":
                return "a KV format"
            case "formats":
                return "a list of KV formats"
        return f"{self.minimum:,} to {self.maximum:,}{', null' if self.is_nullable else ''}"

    def is_same(self, before: Any, after: Any) -> bool:
        """Return whether a preview shows no difference: a list of formats is a set, and true is not 1."""
        if self.kind == "formats" and isinstance(before, list) and isinstance(after, list):
            return sorted(before) == sorted(after)
        return bool(before == after) and (self.kind != "switch" or type(before) is type(after))


EXPIRES_NOW = Consequence(
    "lowered",
    "expires_now",
    "Expires at once",
    "Blocks older than {after} s stop matching{where} as soon as agents apply this.",
)

_FIELDS = (
    PolicyField(
        name="prefix_caching",
        label="Prefix caching",
        kind="switch",
        default=True,
        help="Off: nothing is matched and nothing is kept.",
        agent="Off: matches no prefix and keeps no block.",
        enforcer="block manager",
        members_may_change=True,
        consequences=(
            Consequence(
                "off",
                "caching_off",
                "Every request misses",
                "Nothing is matched or kept any more{where}: every request misses.",
            ),
        ),
    ),
    PolicyField(
        name="ttl_seconds",
        label="TTL",
        kind="seconds",
        default=300,
        minimum=1,
        maximum=WEEK_SECONDS,
        at_most="max_age_seconds",
        help="How long a block stays matchable.",
        agent="Matches a block for this long, counted as the TTL mode says.",
        enforcer="block manager",
        members_may_change=True,
        consequences=(EXPIRES_NOW,),
    ),
    PolicyField(
        name="ttl_mode",
        label="TTL mode",
        kind="choice",
        default="sliding",
        choices=get_args(TtlMode),
        help="Sliding: every hit renews the TTL. Absolute: the TTL counts from when the block was made.",
        agent="`sliding`: a hit, and the end of a request, renew the TTL. `absolute`: the TTL counts from creation.",
        enforcer="block manager",
        members_may_change=True,
    ),
    PolicyField(
        name="max_age_seconds",
        label="Maximum age",
        kind="seconds",
        default=DAY_SECONDS,
        minimum=1,
        maximum=YEAR_SECONDS,
        is_nullable=True,
        help="No block is matched beyond this age, also when hits renew it.",
        agent="Matches no block beyond this age, also when sliding. `null`: no maximum.",
        enforcer="block manager",
        members_may_change=True,
        members_maximum=WEEK_SECONDS,
        consequences=(EXPIRES_NOW,),
    ),
    PolicyField(
        name="kv_dtype",
        label="KV format",
        kind="format",
        default="fp8",
        help="The format of keys and values. Another format starts cold: blocks of different formats never match.",
        agent="Computes and keeps keys and values in this format ([costs](quality.md)). An engine whose model runs in "
        "float32 also has `fp32`.",
        enforcer="formats",
        members_may_change=True,
        consequences=(
            Consequence(
                "changed",
                "cold_cache",
                "Cold cache",
                "{before} → {after}{where} is a cold cache: blocks of the old format never match the new one.",
            ),
        ),
    ),
    PolicyField(
        name="request_kv_dtypes",
        label="KV formats requests may choose",
        kind="formats",
        default=("int4",),
        help="Besides the KV format; a request for any other gets 400.",
        agent="Accepts a request for one of these formats besides `kv_dtype`, and refuses any other.",
        enforcer="block manager",
        members_may_change=True,
        consequences=(
            Consequence(
                "shortened",
                "requests_refused",
                "Requests are refused",
                "Requests that ask for {lost}{where} get 400 from now on.",
            ),
        ),
    ),
    PolicyField(
        name="reserved_share",
        label="Reserved share",
        kind="share",
        default=0.0,
        minimum=0,
        maximum=1,
        at_most="limit_share",
        help="Share of each pool that other namespaces cannot evict; what is idle is lent.",
        agent="Evicts none of these blocks for another namespace.",
        enforcer="block manager",
        takes_from_others=True,
    ),
    PolicyField(
        name="limit_share",
        label="Share limit",
        kind="share",
        default=1.0,
        minimum=0,
        maximum=1,
        help="Share of each pool that it never exceeds: its own oldest blocks are evicted first.",
        agent="Evicts the namespace's own blocks before it exceeds this share of the pool.",
        enforcer="block manager",
        takes_from_others=True,
        consequences=(
            Consequence(
                "lowered",
                "evicts_now",
                "Evicts at once",
                "What is above {after:.1%} of a pool{where} is evicted at once.",
            ),
        ),
    ),
    PolicyField(
        name="weight",
        label="Weight",
        kind="number",
        default=1.0,
        minimum=0.001,
        maximum=1000,
        help="Fair share of what is contended, against the weights of others.",
        agent="Shares out admission, eviction and compute between namespaces by weight.",
        enforcer="backend",
        takes_from_others=True,
    ),
    PolicyField(
        name="pin_share",
        label="Pin budget",
        kind="share",
        default=0.0,
        minimum=0,
        maximum=1,
        at_most="limit_share",
        help="Share of each pool that its pins may take. It counts as reserved.",
        agent="Keeps pinned prefixes up to this share of the pool; a pin beyond it is `over_budget`.",
        enforcer="block manager",
        takes_from_others=True,
    ),
    PolicyField(
        name="offload",
        label="Offload tier",
        kind="choice",
        default="none",
        choices=get_args(Offload),
        help="Where evicted blocks go: nowhere, to the memory of the host, or to disk.",
        agent="`host`: keeps evicted blocks that were hit before in the host pool (`--host-pool`), where there is one. "
        "`disk`: no engine has such a tier yet.",
        enforcer="backend",
        takes_from_others=True,
        is_graded_by_value=True,
    ),
)

FIELDS: Mapping[str, PolicyField] = MappingProxyType({field.name: field for field in _FIELDS})
LABELS: Mapping[str, str] = MappingProxyType({field.name: field.label for field in _FIELDS})
DEFAULTS: Mapping[str, Any] = MappingProxyType({field.name: field.default for field in _FIELDS})


def names(matches: Callable[[PolicyField], bool]) -> tuple[str, ...]:
    """Return the names of the matching fields, in their order."""
    return tuple(field.name for field in _FIELDS if matches(field))


SECONDS = names(lambda field: field.kind == "seconds")
SHARES = names(lambda field: field.kind == "share")
FORMAT_FIELDS = names(lambda field: field.kind in ("format", "formats"))
