"""One rollout as its page shows it: steps, guards, agents, events, and the possible actions. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.charts import Bar, bar
from controlplane.dashboard.frame.deeds import Deed
from controlplane.dashboard.frame.states import Tag, tag_of
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.fields import reason_words
from controlplane.dashboard.policies.previews import DiffLine, said_between
from controlplane.dashboard.rollouts import words
from controlplane.dashboard.rollouts.words import Seen
from engine_agent.contracts.words import listed

MOST_AGENTS = 200
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class StepRow:
    number: int
    whom: str
    state: Tag
    agents: str
    bake: str
    at: datetime | None = None


def rollout_now(rollout: Seen, *, now: datetime) -> dict[str, Any]:
    """Return what changes during a rollout. `rollout` is from rollouts.views.rollout_detail."""
    agents = sorted(rollout["agents"], key=_most_awaited)
    reached_count, done = (
        sum(agent.reached for agent in agents),
        sum(agent.reached and agent.acknowledged for agent in agents),
    )
    counts = {"reached": reached_count, "acknowledged": done}
    return {
        "headline": words.headline(rollout, **counts, total=len(agents)),
        "why": reason_words(rollout["why"]),
        "next": words.what_next(rollout, **counts, now=now),
        "state": words.state_tag(rollout, now),
        "seen": seen_as(rollout),
        "is_over": not words.is_open(rollout),
        "progress": _progress(len(agents), reached_count, done),
        "steps": list(_steps(rollout, reached_count, done)) if rollout["strategy"] == "canary" else [],
        "steps_title": _steps_title(rollout),
        "guards": list(_guards(rollout)),
        "guards_title": _guards_title(rollout),
        "basis": _basis(rollout),
        "agents": [(agent, reason_words(agent.why or "")) for agent in agents[:MOST_AGENTS]],
        "agents_title": f"{done} of {counted(len(agents), 'agent')} {'holds' if done == 1 else 'hold'} it",
        "unshown": max(0, len(agents) - MOST_AGENTS),
    }


def _most_awaited(agent: Any) -> tuple[bool, bool, str]:
    return agent.acknowledged, not agent.acknowledged and not agent.reached, agent.agent


def seen_as(rollout: Seen) -> str:
    """Return state and step, which forms send back to detect an outdated page."""
    return f"{rollout['state']}-{rollout['step']}"


def _progress(total: int, reached_count: int, done: int) -> Bar:
    parts = [
        ("Acknowledged", done, "first"),
        ("Reached, not acknowledged yet", reached_count - done, "second"),
        ("Not reached: holds what was before", total - reached_count, "rest"),
    ]
    return bar(f"{done} of {counted(total, 'agent')} acknowledged it", parts)


# Steps


def _steps_title(rollout: Seen) -> str:
    where, ended = words.place_in_steps(rollout), not words.is_open(rollout)
    if not ended:
        return f"It is at {where}"
    return (
        f"It went all {counted(len(rollout['steps']), 'step')}"
        if rollout["state"] == "done"
        else f"It ended at {where}"
    )


def _steps(rollout: Seen, reached_count: int, done: int) -> Iterator[StepRow]:
    bakes = {bake["step"]: bake for bake in rollout["bakes"]}
    for number, step in enumerate(words.steps_of(rollout)):
        target = words.step_words(step)
        if number < rollout["step"]:
            bake = bakes.get(number)
            findings_text = words.findings_words(bake["findings"]) if bake else "promoted before its bake was over"
            at = datetime.fromisoformat(bake["at"]) if bake else None
            yield StepRow(
                number + 1, target, Tag("passed", "ok"), "all acknowledged" if bake else "–", findings_text, at
            )
        elif number == rollout["step"]:
            yield StepRow(
                number + 1,
                target,
                _step_state(rollout),
                f"{done} of {reached_count} acknowledged",
                _bake(rollout, number),
            )
        else:
            coming = Tag("to come", "info") if words.is_open(rollout) else Tag("never reached", "info")
            yield StepRow(number + 1, target, coming, "–", _bake(rollout, number))


def _step_state(rollout: Seen) -> Tag:
    if rollout["state"] == "running":
        return Tag("now", "info")
    return Tag("passed", "ok") if rollout["state"] == "done" else tag_of("rollout", rollout["state"])


def _bake(rollout: Seen, number: int) -> str:
    if number >= len(rollout["steps"]) - 1:
        return "none: nobody is left to compare with"
    return f"{duration(rollout['bake_seconds'])} once all have acknowledged"


# Guards


def _guards(rollout: Seen) -> Iterator[tuple[str, str, float | None, Seen | None]]:
    """Yield each guard's name, title, bound and newest finding."""
    guards, findings = rollout["guards"] or {}, {finding["guard"]: finding for finding in rollout["findings"]}
    for name, title in words.GUARDS.items():
        bound = guards.get(name)
        yield name, title, bound, None if bound is None else findings.get(name)


def _guards_title(rollout: Seen) -> str:
    findings = rollout["findings"]
    if not findings:
        return "Its guards have compared nothing yet" if words.is_open(rollout) else "Its guards compared nothing"
    breached = [finding for finding in findings if finding["verdict"] == "breached"]
    undecided = [finding for finding in findings if finding["verdict"] == "too little"]
    if breached:
        return f"{len(breached)} of {counted(len(findings), 'guard')} {'is' if len(breached) == 1 else 'are'} breached"
    if undecided:
        have = "has" if len(undecided) == 1 else "have"
        return f"{len(undecided)} of {counted(len(findings), 'guard')} {have} too little to tell"
    return f"All {len(findings)} guards are kept" if findings[1:] else "Its guard is kept"


def _basis(rollout: Seen) -> str:
    """Return how many requests the guards compare, and how many they need."""
    if rollout["strategy"] != "canary":
        return ""
    new, old = rollout["changed"], rollout["unchanged"]
    least = (rollout["guards"] or {}).get("min_requests", 0)
    counts = (
        f"{counted(new['requests'], 'request')} on {counted(new['agents'], 'engine')} with it, "
        f"{old['requests']} on {old['agents']} without, since this step’s bake began."
    )
    begun = counts if new["agents"] or old["agents"] else "Numbers are counted from the beginning of a bake."
    return f"{begun} With fewer than {least} on either side nothing is decided."


# The revision


def contents(rollout: Seen, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, list[DiffLine]]:
    """Return a title and the values that the revision changes."""
    changes = list(said_between(before, after))
    changes_text = counted(len(changes), "value") if changes else "nothing"
    if rollout["base_revision"]:
        summary = f"changes {changes_text} against revision {rollout['base_revision']}"
    else:
        summary = (
            f"sets {changes_text} that {'was' if len(changes) == 1 else 'were'} inherited"
            if changes
            else "sets nothing"
        )
    return f"Revision {rollout['revision']} {summary}", changes


# Events


VERBS = {
    "rollout.begin": "Began",
    "rollout.advance": "Went to the next step",
    "rollout.pause": "Paused",
    "rollout.resume": "Resumed",
    "rollout.promote": "Promoted",
    "rollout.done": "Done",
    "rollout.abort": "Aborted",
    "rollout.roll-back": "Taken back",
    "rollout.supersede": "Superseded",
}


def event_words(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return what happened, and why. `record` is from tenants.audit.record_view."""
    after, verb = record["after"] or {}, record["verb"]
    action, agents = VERBS.get(verb, verb), after.get("reached") or []
    agents_text = f"Reaches {listed(agents, MOST_NAMED)}." if agents and verb != "rollout.done" else ""
    why = " ".join(filter(None, [reason_words(after.get("why", "")), agents_text]))
    return f"{action}, step {after['step'] + 1}" if "step" in after else action, why


# Actions


def deeds(rollout: Seen, *, total: int) -> list[Deed]:
    """Return the actions possible in its state."""
    if not words.is_open(rollout):
        return []
    actions = []
    if rollout["state"] == "running":
        actions.append(
            Deed("pause", "Pause", "Nobody else is reached until it is resumed. Guards watch on, and may take it back.")
        )
    else:
        resume_text = (
            "its bake begins anew, with what was counted so far" if rollout["baking_since"] else "from where it was"
        )
        actions.append(Deed("resume", "Resume", f"It goes on: {resume_text}."))
    if not words.is_last_step(rollout):
        following = words.step_words(words.steps_of(rollout)[rollout["step"] + 1])
        label = f"Promote to step {rollout['step'] + 2}"
        actions.append(Deed("promote", label, f"It goes to {following} at once, whatever its guards say of this step."))
    base = f"what revision {rollout['base_revision']} said" if rollout["base_revision"] else "what was inherited before"
    back = f"It publishes {base} as the next revision, for all {counted(total, 'agent')} at once. It cannot be resumed."
    actions.append(Deed("abort", "Abort and take back", back, confirm=rollout["place"]))
    return actions
