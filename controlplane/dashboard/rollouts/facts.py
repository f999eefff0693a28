"""One rollout as its page shows it: steps, guards with numbers, agents, what became of it, what may be done. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.fleet.rows import GUARDS, Tag
from controlplane.dashboard.frame.charts import Bar, bar
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.fields import reason_words
from controlplane.dashboard.policies.previews import DiffLine, said_between
from controlplane.dashboard.rollouts import words
from controlplane.dashboard.rollouts.words import Seen

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


@dataclass(frozen=True, slots=True)
class GuardRow:
    name: str
    reached: str
    others: str
    limit: str
    verdict: Tag
    words: str


@dataclass(frozen=True, slots=True)
class AgentOf:
    id: str
    kind: str
    state: Tag
    why: str


@dataclass(frozen=True, slots=True)
class RolloutNow:
    """What moves while it is under way."""

    headline: str
    why: str
    next: str
    state: Tag
    seen: str
    is_over: bool
    progress: Bar
    steps: tuple[StepRow, ...]
    steps_title: str
    guards: tuple[GuardRow, ...]
    guards_title: str
    basis: str
    agents: tuple[AgentOf, ...]
    agents_title: str
    unshown: int


def rollout_now(seen: Seen, *, now: datetime) -> RolloutNow:
    """`seen`: what rollouts.views.rollout_detail says."""
    agents = seen["agents"]
    reached = [one for one in agents if one.reached]
    done = sum(one.acknowledged for one in reached)
    rows = sorted(map(_agent, agents), key=lambda one: (one.state.tone == "ok", one.state.word, one.id))
    counts = {"reached": len(reached), "acknowledged": done}
    return RolloutNow(
        headline=words.headline(seen, **counts, total=len(agents)),
        why=reason_words(seen["why"]),
        next=words.what_next(seen, **counts, now=now),
        state=words.state_tag(seen, now),
        seen=seen_as(seen),
        is_over=not words.is_open(seen),
        progress=_progress(len(agents), len(reached), done),
        steps=tuple(_steps(seen, len(reached), done)) if seen["strategy"] == "canary" else (),
        steps_title=_steps_title(seen),
        guards=tuple(_guards(seen)),
        guards_title=_guards_title(seen),
        basis=_basis(seen),
        agents=tuple(rows[:MOST_AGENTS]),
        agents_title=f"{done} of {counted(len(agents), 'agent')} {'holds' if done == 1 else 'hold'} it",
        unshown=len(rows) - len(rows[:MOST_AGENTS]),
    )


def seen_as(seen: Seen) -> str:
    """By which a form knows that the rollout is still where its page showed it."""
    return f"{seen['state']}-{seen['step']}"


def _progress(total: int, reached: int, done: int) -> Bar:
    parts = [
        ("Acknowledged", done, "first"),
        ("Reached, not acknowledged yet", reached - done, "second"),
        ("Not reached: holds what was before", total - reached, "rest"),
    ]
    return bar(f"{done} of {counted(total, 'agent')} acknowledged it", parts)


def _agent(one: Any) -> AgentOf:
    if one.acknowledged:
        state = Tag("holds it", "ok")
    else:
        state = Tag("awaited", "warn") if one.reached else Tag("not reached", "info")
    return AgentOf(one.agent, one.kind, state, reason_words(one.why or ""))


# Steps


def _steps_title(seen: Seen) -> str:
    where, ended = words.place_in_steps(seen), not words.is_open(seen)
    if not ended:
        return f"It is at {where}"
    return f"It went all {counted(len(seen['steps']), 'step')}" if seen["state"] == "done" else f"It ended at {where}"


def _steps(seen: Seen, reached: int, done: int) -> Iterator[StepRow]:
    bakes = {one["step"]: one for one in seen["bakes"]}
    for number, step in enumerate(words.steps_of(seen)):
        whom = words.step_words(step)
        if number < seen["step"]:
            bake = bakes.get(number)
            said = words.findings_words(bake["findings"]) if bake else "promoted before its bake was over"
            at = datetime.fromisoformat(bake["at"]) if bake else None
            yield StepRow(number + 1, whom, Tag("passed", "ok"), "all acknowledged" if bake else "–", said, at)
        elif number == seen["step"]:
            yield StepRow(number + 1, whom, _step_state(seen), f"{done} of {reached} acknowledged", _bake(seen, number))
        else:
            coming = Tag("to come", "info") if words.is_open(seen) else Tag("never reached", "info")
            yield StepRow(number + 1, whom, coming, "–", _bake(seen, number))


def _step_state(seen: Seen) -> Tag:
    if seen["state"] == "running":
        return Tag("now", "info")
    return Tag("passed", "ok") if seen["state"] == "done" else words.STATES[seen["state"]]


def _bake(seen: Seen, number: int) -> str:
    if number >= len(seen["steps"]) - 1:
        return "none: nobody is left to compare with"
    return f"{duration(seen['bake_seconds'])} once all have acknowledged"


# Guards


def _guards(seen: Seen) -> Iterator[GuardRow]:
    if seen["strategy"] != "canary":
        return
    guards, found = seen["guards"] or {}, {one["guard"]: one for one in seen["findings"]}
    for name, title in GUARDS.items():
        bound = guards.get(name)
        if bound is None:
            yield GuardRow(title, "–", "–", "not set", Tag("not asked", "info"), "")
        elif name in found:
            yield _finding(title, found[name])
        else:
            yield GuardRow(title, "–", "–", words.limit(name, bound), words.NOT_YET, "")
    asked = "asked at the end of each bake" if guards.get("integrity") else ""
    told = Tag("at the end", "info") if asked else Tag("not asked", "info")
    yield GuardRow("Integrity check", "–", "–", "nothing wrong" if asked else "not set", told, asked)


def _finding(title: str, one: Seen) -> GuardRow:
    name = one["guard"]
    return GuardRow(
        name=title,
        reached=words.figure(name, one["changed"]),
        others=words.figure(name, one["unchanged"]),
        limit=words.limit(name, one["bound"]),
        verdict=words.VERDICTS[one["verdict"]],
        words=one["words"],
    )


def _guards_title(seen: Seen) -> str:
    findings = seen["findings"]
    if not findings:
        return "Its guards have compared nothing yet" if words.is_open(seen) else "Its guards compared nothing"
    breached = [one for one in findings if one["verdict"] == "breached"]
    little = [one for one in findings if one["verdict"] == "too little"]
    if breached:
        return f"{len(breached)} of {counted(len(findings), 'guard')} {'is' if len(breached) == 1 else 'are'} breached"
    if little:
        have = "has" if len(little) == 1 else "have"
        return f"{len(little)} of {counted(len(findings), 'guard')} {have} too little to tell"
    return f"All {len(findings)} guards are kept" if findings[1:] else "Its guard is kept"


def _basis(seen: Seen) -> str:
    """What the numbers are of, and what they are worth."""
    if seen["strategy"] != "canary":
        return ""
    new, old = seen["changed"], seen["unchanged"]
    least = (seen["guards"] or {}).get("min_requests", 0)
    counts = (
        f"{counted(new['requests'], 'request')} on {counted(new['agents'], 'engine')} with it, "
        f"{old['requests']} on {old['agents']} without, since this step’s bake began."
    )
    begun = counts if new["agents"] or old["agents"] else "Numbers are counted from the beginning of a bake."
    return f"{begun} With fewer than {least} on either side nothing is decided."


# What it is


@dataclass(frozen=True, slots=True)
class Contents:
    """What the revision says other than what agents held before."""

    title: str
    note: str
    changes: tuple[DiffLine, ...]


def contents(seen: Seen, before: Mapping[str, Any], after: Mapping[str, Any], note: str) -> Contents:
    found = tuple(said_between(before, after))
    what = counted(len(found), "value") if found else "nothing"
    if seen["base_revision"]:
        said = f"changes {what} against revision {seen['base_revision']}"
    else:
        said = f"sets {what} that {'was' if len(found) == 1 else 'were'} inherited" if found else "sets nothing"
    return Contents(f"Revision {seen['revision']} {said}", note, found)


# What became of it


@dataclass(frozen=True, slots=True)
class Event:
    at: datetime
    what: str
    who: str
    why: str


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


def events(records: Iterable[Mapping[str, Any]]) -> list[Event]:
    """`records`: of the audit trail, as tenants.audit.record_view says them, newest first."""
    return [_event(one) for one in records]


def _event(record: Mapping[str, Any]) -> Event:
    after, verb = record["after"] or {}, record["verb"]
    reached = after.get("reached") or []
    whom = f"Reaches {_named(reached)}." if reached and verb != "rollout.done" else ""
    return Event(
        at=record["at"],
        what=f"{VERBS.get(verb, verb)}, step {after['step'] + 1}" if "step" in after else VERBS.get(verb, verb),
        who=record["actor"]["name"],
        why=" ".join(filter(None, [reason_words(after.get("why", "")), whom])),
    )


def _named(agents: Sequence[str]) -> str:
    more = f" and {len(agents) - MOST_NAMED} more" if len(agents) > MOST_NAMED else ""
    return ", ".join(agents[:MOST_NAMED]) + more


# What may be done


@dataclass(frozen=True, slots=True)
class Deed:
    """`name` is of the address; `confirm`: what has to be typed, for what cannot be taken lightly."""

    name: str
    label: str
    consequence: str
    confirm: str = ""

    @property
    def is_danger(self) -> bool:
        return bool(self.confirm)


def deeds(seen: Seen, *, total: int) -> list[Deed]:
    """Those that make sense where it is."""
    if not words.is_open(seen):
        return []
    found = []
    if seen["state"] == "running":
        found.append(
            Deed("pause", "Pause", "Nobody else is reached until it is resumed. Guards watch on, and may take it back.")
        )
    else:
        again = "its bake begins anew, with what was counted so far" if seen["baking_since"] else "from where it was"
        found.append(Deed("resume", "Resume", f"It goes on: {again}."))
    if not words.is_last_step(seen):
        following = words.step_words(words.steps_of(seen)[seen["step"] + 1])
        label = f"Promote to step {seen['step'] + 2}"
        found.append(Deed("promote", label, f"It goes to {following} at once, whatever its guards say of this step."))
    base = f"what revision {seen['base_revision']} said" if seen["base_revision"] else "what was inherited before"
    back = f"It publishes {base} as the next revision, for all {counted(total, 'agent')} at once. It cannot be resumed."
    found.append(Deed("abort", "Abort and take back", back, confirm=seen["place"]))
    return found
