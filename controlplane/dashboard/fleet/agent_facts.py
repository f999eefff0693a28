"""One agent as its page shows it: desired and applied snapshot, isolation, operations, possible actions. Pure."""

from collections.abc import Mapping
from typing import Any

from controlplane.dashboard.fleet.rows import sync_tag
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.deeds import Deed
from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.words import backend_words, counted, duration, sentence
from controlplane.dashboard.policies.enforcement_words import labels_words, unenforced
from controlplane.fleet.agents import SECONDS
from controlplane.fleet.canaries import ADVANTAGE, Timing
from controlplane.fleet.models import OperationStep
from engine_agent.contracts.policy_fields import LABELS

Seen = Mapping[str, Any]  # the result of fleet.views.agent_view
DEED_WORDS = {
    "drain": "Drain",
    "resume": "Resume",
    "integrity": "Check integrity",
    "rotate_token": "Fetch a new token",
    "warm_pins": "Warm pins",
}
STATE_WORDS = {"publish": "Hold what was published", "purge": "Purge, and prove it"}


def headline(agent: Seen) -> str:
    name, state = agent["id"], agent["state"]
    if state == "revoked":
        return f"{name} is out of the fleet"
    if state == "enrolled":
        return f"{name} has joined, and was never heard of since"
    if state in ("stale", "down", "failed"):
        return f"{name} is {state}"
    holds = "holds what is published" if agent["in_sync"] else "does not hold what is published yet"
    if names := unenforced(agent):
        holds += f", but does not enforce: {labels_words(names)}"
    return f"{name} is {state} and {holds}"


def advice(agent: Seen) -> str:
    role_text = (
        "A gateway" if agent["kind"] == "gateway" else f"An engine ({backend_words(agent) or 'backend not reported'})"
    )
    role_sentence = f"{role_text} of the group {agent['group']}."
    if agent["not_enforced"] and not agent["conditions"]:
        unenforced_text = "; ".join(f"{LABELS[field['field']]}: {field['why']}" for field in agent["not_enforced"])
        return f"{role_sentence} It does not enforce {unenforced_text}."
    return sentence(f"{agent['why']}.") if agent["why"] else f"{role_sentence} Nothing is wrong with it."


def sync(agent: Seen) -> Tag:
    return Tag("holds nothing of ours", "info") if agent["state"] == "revoked" else sync_tag(agent)


def sync_title(agent: Seen) -> str:
    if agent["state"] == "revoked":
        return "What it held when it was taken out"
    if agent["in_sync"]:
        return f"It holds generation {agent['applied_generation']}, as it is to"
    if not agent["applied_hash"]:
        return f"It holds nothing yet, and is to hold generation {agent['desired_generation']}"
    if agent["applied_generation"] == agent["desired_generation"]:
        return f"It acknowledged generation {agent['applied_generation']}, its engine does not hold it"
    return f"It holds generation {agent['applied_generation']} of {agent['desired_generation']}"


def clock_words(skew_seconds: float) -> str:
    if abs(skew_seconds) < 0.001:
        return "as ours"
    return f"{abs(skew_seconds) * 1000:,.0f} ms {'ahead of' if skew_seconds > 0 else 'behind'} ours"


# The isolation canary


CANARY = {
    "isolated": "Tenants do not find each other’s prompts here",
    "broken": "Isolation is broken here",
    "unproven": "Probes prove nothing here",
    "unknown": "Nobody has probed it within an hour",
}
OUTCOMES = {
    "isolated": "the owner found its prompt cached, the other did not",
    "leaked": "a tenant found cached what it had not sent",
    "unkept": "nobody found anything cached, which proves nothing",
    "failed": "the engine did not answer the probes",
}


def timing_words(timing: Timing | None) -> str:
    if timing is None:
        return "Nothing is said of time yet: that takes 30 pairs of answers from one gateway."
    lies = f"AUC {timing.auc:.3f}, 99.9 % interval {timing.low:.3f} to {timing.high:.3f}, of {timing.pairs:,} pairs"
    verdict = "time tells" if timing.advantage > ADVANTAGE else "nothing proves that time tells"
    return f"{lies}: {verdict}. 0.5 is no advantage; beyond {ADVANTAGE:g} from it is one."


# Operations


def step_words(step: OperationStep) -> str:
    kind = step.operation.kind
    if step.deed == "state":
        return STATE_WORDS.get(kind, f"Hold what {kind.replace('_', ' ')} left behind")
    return DEED_WORDS.get(step.deed, step.deed.replace("_", " "))


def receipt_words(receipt: Mapping[str, Any] | None, attempts: int) -> str:
    if receipt is None:
        return f"told {counted(attempts, 'time')}, no receipt yet" if attempts else "no receipt yet"
    parts = list[str]()
    if receipt.get("blocks") or receipt.get("bytes"):
        parts.append(f"{counted(receipt['blocks'], 'block')}, {bytes_text(receipt['bytes'])}")
    if receipt.get("note"):
        parts.append(str(receipt["note"]))
    report = receipt.get("result") or {}
    if isinstance(problems := report.get("problems"), list):
        listed = ": " + "; ".join(str(problem) for problem in problems[:3]) if problems else ""
        parts.append(f"{counted(len(problems), 'problem')} found{listed}")
    return ", ".join(parts) or "acknowledged"


# Actions


def seen_as(*, is_draining: bool, is_revoked: bool) -> str:
    """Return the agent's state, which forms send back to detect an outdated page."""
    return "revoked" if is_revoked else "draining" if is_draining else "serving"


def deeds(agent: Seen, *, others: int) -> list[Deed]:
    """Return the possible actions. `others`: other engines of its group that take requests."""
    if agent["state"] == "revoked":
        return []
    name, is_engine = agent["id"], agent["kind"] == "engine"
    actions = list[Deed]()
    if agent["draining"]:
        actions.append(
            Deed("resume", f"Resume {name}", "Gateways send it requests again, as its cache and queue deserve.")
        )
    else:
        actions.append(Deed("drain", f"Drain {name}", _drain_words(agent, others)))
    if is_engine:
        words = f"It looks through all that it holds, and its receipt says what does not fit. {_long('integrity')}"
        actions.append(Deed("integrity", "Check integrity", words))
    words = "It fetches a new token; the old one ends when the new one is first used. Nothing else changes."
    actions.append(Deed("rotate-token", "Renew its token", words))
    actions.append(Deed("revoke", f"Take {name} out of the fleet", _revoke_words(agent, others), confirm=name))
    return actions


def _drain_words(agent: Seen, other_engines: int) -> str:
    running = (agent["running"] or 0) + (agent["waiting"] or 0)
    first = f"it finishes {counted(running, 'request')} first" if running else "it answers nothing at the moment"
    if agent["kind"] != "engine":
        return f"It is told to take nothing new; {first}. {_long('drain')}"
    begin = f"Gateways send it nothing new from now on; {first}."
    return f"{begin} {_left(agent, other_engines)} Its cache stays, and expires as ever. {_long('drain')}"


def _revoke_words(agent: Seen, other_engines: int) -> str:
    begin = "Its token and its broker login end at once, and no operation waits for it any more."
    remaining_text = f" {_left(agent, other_engines)}" if agent["kind"] == "engine" else ""
    return f"{begin}{remaining_text} Drain it first, or requests under way may fail. Only a join token brings it back."


def _left(agent: Seen, other_engines: int) -> str:
    if not other_engines:
        return f"No other engine of the group {agent['group']} takes requests: they would be refused."
    takes = "takes" if other_engines == 1 else "take"
    return f"{counted(other_engines, 'other engine')} of the group {agent['group']} {takes} its share."


def _long(action: Any) -> str:
    return f"It has {duration(round(SECONDS[action]))} for it."
