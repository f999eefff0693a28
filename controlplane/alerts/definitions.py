"""The metrics that alert rules can watch, and the built-in rules. Pure.

The built-in rules in the database are made from this module. deploy/prometheus/luminet.rules.yml and docs/alerts.md
list the same rules, and a test compares the three.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Subject = Literal["agent", "namespace", "agent and namespace", "fleet"]
Comparison = Literal["above", "below"]
Unit = Literal["share", "times", "seconds", "count", "tokens"]
Scope = Literal["fleet", "group", "organisation", "namespace"]

SCOPES: Final = ("fleet", "group", "organisation", "namespace")
COMPARISONS: Final = ("above", "below")
RECENT_SECONDS: Final = 300  # the period that rates and ratios cover
TRAFFIC_SECONDS: Final = 900  # the period in which a rule's least prompt tokens are counted
KEPT_SECONDS: Final = 3600  # how far back earlier preemption counters are looked up
MARGIN: Final = 0.1  # the share of its threshold by which a value must recover, unless the rule sets `clears_at`
CLEAR_FOR_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Metric:
    """A number measured of each subject. `says` is a sentence about a value, for everyone who may see the alert."""

    name: str
    subject: Subject
    unit: Unit
    about: str
    says: str
    next_step: str
    is_for_customers: bool = False
    uses_tokens: bool = False  # whether `least_prompt_tokens` applies


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            "pool_use",
            "agent",
            "share",
            "Share of an engine's pool that requests hold now: what is idle in the cache counts as free.",
            "Requests hold {value} of its pool",
            "Send it less, let it run fewer requests at once, or give it a larger pool; "
            "who holds most is in `GET /fleet/stats`.",
        ),
        Metric(
            "hit_ratio",
            "namespace",
            "share",
            "Cached of all prompt tokens of its customers over the last 5 minutes; a rule's least prompt tokens are "
            "those of the last 15.",
            "{value} of its prompt tokens came from the cache in the last 5 minutes",
            "See by which reason its tokens were missed (`luminet stats`), then give it a longer TTL or more room, or "
            "put what changes at the end of the prompts.",
            is_for_customers=True,
            uses_tokens=True,
        ),
        Metric(
            "evictions",
            "namespace",
            "times",
            "Blocks of it evicted a second over the last 5 minutes, as a multiple of its mean over the last 24 whole "
            "hours (at least a block a minute). Fewer than 100 blocks in 5 minutes count as none.",
            "Its blocks are evicted {value} as fast as in the mean of 24 hours",
            "Shorten the TTL of what is not used again; operators can reserve room for it (`reserved_share`) or add "
            "pool.",
            is_for_customers=True,
        ),
        Metric(
            "preemptions",
            "agent",
            "count",
            "Requests that an engine put back in the last 5 minutes because answers needed their blocks.",
            "It put {value} requests back in the last 5 minutes",
            "Run fewer requests at once (`--max-running`), or give the pool more room.",
        ),
        Metric(
            "silence",
            "agent",
            "seconds",
            "Since an agent was last heard of, once that is longer than the cadence allows; 0 until then.",
            "Nothing was heard of it for {value}",
            "Look whether its machine and its sidecar run, and whether they reach the control plane.",
        ),
        Metric(
            "drift",
            "agent",
            "seconds",
            "For how long an agent has held something else than it is to hold; 0 where it holds that.",
            "It has held something else than it is to hold for {value}",
            "`luminet get agent ID` says why: it refused the state, cannot be reached, or was changed by hand.",
        ),
        Metric(
            "disk_wait",
            "agent",
            "seconds",
            "For how long an agent has waited for room on its disk; 0 where it can write.",
            "It has waited for room on its disk for {value}",
            "Make room where its home is: `luminet get agent ID` names the folder. It goes on by itself.",
        ),
        Metric(
            "clock_skew",
            "agent",
            "seconds",
            "By how much an agent's clock and the control plane's are apart, either way.",
            "Its clock is {value} off the control plane's",
            "Set its machine's clock, or the control plane's where that of all agents is off. Nothing is dated by it.",
        ),
        Metric(
            "reconciliation",
            "agent and namespace",
            "tokens",
            "By how much an engine's own counters, what its reports say and what the windows add up differ.",
            "Its counters, its reports and the windows differ by {value}",
            "`GET /fleet/reconciliation` names which numbers differ; keep the agent's journal until that is explained.",
        ),
        Metric(
            "reconciliation_age",
            "fleet",
            "seconds",
            "Since engines, reports and windows were last compared. Before the first comparison it is not known.",
            "Nobody has compared the numbers for {value}",
            "Look in the worker's log why `reconcile` does not come to its end; until then `reconciliation` says what "
            "was so at the last one.",
        ),
        Metric(
            "audit_anchors",
            "fleet",
            "count",
            "Anchors of the audit trail that the trail does not fit, and lines of the file that are damaged. Without "
            "LUMINET_AUDIT_ANCHOR_FILE it is not known.",
            "The audit trail does not fit {value} of its anchors: records were cut off or replaced, or the file was "
            "damaged",
            "`luminet audit verify --anchor FILE` names the records. Keep the file and the database's logs, and treat "
            "it as an incident; a restore by `luminet restore` is no reason for it.",
        ),
        Metric(
            "audit_anchor_age",
            "fleet",
            "seconds",
            "Since the oldest record of the audit trail was written that no anchor covers; 0 where the head is "
            "anchored. Without LUMINET_AUDIT_ANCHOR_FILE it is not known.",
            "The audit trail has not been anchored for {value}",
            "Look in the worker's log why the file cannot be written, and make room or mend its permissions.",
        ),
        Metric(
            "isolation",
            "agent",
            "count",
            "Rounds of isolation probes of the last hour in which an engine had cached for one tenant what only "
            "another had sent, or what nobody had. Without probes it is not known.",
            "In {value} rounds of the last hour a tenant found cached what it had not sent",
            "Drain the agent, keep its log and its snapshot, and treat it as an incident; `GET /fleet/agents/{id}` has "
            "what the last probe found.",
        ),
        Metric(
            "isolation_timing",
            "agent",
            "share",
            "How far from 0.5 the 99.9 % interval lies of how well a tenant can tell by time that another's prompt is "
            "cached (ROC area); 0 while it holds 0.5. Before 30 pairs of times it is not known.",
            "By time alone a tenant can tell what another has cached, {value} better than by guessing",
            "Look what answers faster for prompts that somebody else sent: a cache without a key of its namespace.",
        ),
        Metric(
            "integrity",
            "agent",
            "count",
            "Problems that the newest integrity check of an engine's books found, within 24 hours. Without one it is "
            "not known: `POST /fleet/agents/{id}/integrity` asks for it, and so does every canary.",
            "Its last integrity check found {value} things wrong in its books",
            "Drain it, keep its log, and restart its engine: nothing of its cache is used again then.",
        ),
        Metric(
            "refused_rows",
            "agent",
            "count",
            "Rows of usage that an agent told in the last 15 minutes and that could not be counted.",
            "{value} of its rows could not be counted in the last 15 minutes",
            "Each is kept with what is wrong with it; mostly it is an agent's clock or version.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A rule that every installation has."""

    key: str
    name: str
    metric: str
    comparison: Comparison
    threshold: float
    clears_at: float
    for_seconds: int
    severity: Literal["page", "ticket"]
    least_prompt_tokens: int = 0
    clear_for_seconds: int = CLEAR_FOR_SECONDS


def _built_in(
    key: str, name: str, metric: str, threshold: float, seconds: int, severity: Literal["page", "ticket"] = "page"
) -> BuiltIn:
    return BuiltIn(key, name, metric, "above", threshold, threshold, seconds, severity)


BUILT_IN: Final[tuple[BuiltIn, ...]] = (
    BuiltIn("pool_full", "A pool is almost full", "pool_use", "above", 0.90, 0.85, 300, "page"),
    BuiltIn(
        "hit_ratio_low",
        "A namespace misses more than it hits",
        "hit_ratio",
        "below",
        0.50,
        0.55,
        900,
        "ticket",
        least_prompt_tokens=10_000,
    ),
    BuiltIn(
        "evictions_high",
        "A namespace is evicted faster than it used to be",
        "evictions",
        "above",
        3.0,
        2.0,
        300,
        "ticket",
    ),
    _built_in("preemptions", "An engine puts requests back", "preemptions", 0.0, 0, "ticket"),
    _built_in("agent_stale", "Nothing is heard of an agent", "silence", 10.0, 15),
    _built_in("drift", "An agent holds something else than it is to hold", "drift", 60.0, 0),
    _built_in("disk_full", "An agent waits for room on its disk", "disk_wait", 5.0, 0),
    _built_in("clock_off", "An agent's clock is off", "clock_skew", 60.0, 60, "ticket"),
    _built_in("numbers_differ", "Counters, reports and windows differ", "reconciliation", 0.0, 120),
    _built_in("numbers_not_compared", "Nobody compares the numbers", "reconciliation_age", 900.0, 0),
    _built_in("audit_trail_cut", "The audit trail does not fit its anchors", "audit_anchors", 0.0, 0),
    _built_in("audit_not_anchored", "The audit trail is not anchored", "audit_anchor_age", 900.0, 120, "ticket"),
    _built_in("isolation_failed", "An isolation probe failed", "isolation", 0.0, 0),
    BuiltIn(
        "isolation_timing",
        "Time tells what another organisation has cached",
        "isolation_timing",
        "above",
        0.05,
        0.02,
        0,
        "page",
    ),
    _built_in("integrity_failed", "An engine's books are wrong", "integrity", 0.0, 0),
    _built_in("rows_refused", "Rows of usage were refused", "refused_rows", 0.0, 0),
)
BUILT_IN_BY_KEY: Final = {rule.key: rule for rule in BUILT_IN}
OWN_RULES: Final = "own"  # the Prometheus label that all rules made by users share


def clears_at_default(comparison: Comparison, threshold: float) -> float:
    return threshold * (1 - MARGIN if comparison == "above" else 1 + MARGIN)


def value_words(unit: Unit, value: float) -> str:
    """Return the value with its unit, for display."""
    if unit == "share":
        return f"{value * 100:.1f} %"
    if unit == "seconds":
        return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"
    if unit == "times":
        return f"{value:.1f} times"
    return f"{value:,.0f} tokens" if unit == "tokens" else f"{value:,.0f}"
