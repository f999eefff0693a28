"""Sentences on a rollout: its state, steps and guards, and what happens next. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.states import Tag, tag_of
from controlplane.dashboard.frame.words import bake_word, counted, duration
from controlplane.rollouts.spec import EVERYBODY, LabelStep, Step, steps_read

GUARDS = {"error_ratio": "Requests that fail", "hit_ratio_drop": "Hit rate", "ttft_p95_rise": "First token, p95"}
OPEN = ("running", "paused")
Seen = Mapping[str, Any]  # the result of rollouts.views.rollout_view


def place_words(scope: str) -> str:
    return "The fleet’s default" if scope == "fleet" else scope


def name_of(rollout: Seen) -> str:
    return f"{place_words(rollout['place'])}, revision {rollout['revision']}"


def is_open(rollout: Seen) -> bool:
    return rollout["state"] in OPEN


def is_last_step(rollout: Seen) -> bool:
    return bool(rollout["step"] >= len(rollout["steps"]) - 1)


def state_tag(rollout: Seen, now: datetime) -> Tag:
    """Return the state's tag, with the progress of a running bake."""
    if (
        rollout["state"] == "running"
        and rollout["baking_since"] is not None
        and not is_last_step(rollout)
        and rollout["bake_seconds"]
    ):
        return Tag(f"baking, {bake_word(baked_seconds(rollout, now), rollout['bake_seconds'])}", "info")
    return tag_of("rollout", rollout["state"])


def baked_seconds(rollout: Seen, now: datetime) -> int:
    return max(0, int((now - rollout["baking_since"]).total_seconds()))


def step_words(step: Step) -> str:
    """Return which agents the step targets."""
    if isinstance(step, LabelStep):
        return f"engines with {' and '.join(f'{name}={value}' for name, value in sorted(step.labels.items()))}"
    return "everybody" if step == EVERYBODY else f"{step} % of the engines"


def steps_of(rollout: Seen) -> tuple[Step, ...]:
    return steps_read(list(rollout["steps"]))


def place_in_steps(rollout: Seen) -> str:
    return f"step {min(rollout['step'] + 1, len(rollout['steps']))} of {len(rollout['steps'])}"


def headline(rollout: Seen, *, reached: int, acknowledged: int, total: int) -> str:
    name, where = name_of(rollout), place_in_steps(rollout)
    match rollout["state"]:
        case "done":
            return f"{name} is on {'all ' if total > 1 else ''}{counted(total, 'agent')}"
        case "rolled_back" | "aborted":
            return f"{name} was {tag_of('rollout', rollout['state']).word} at {where}"
        case "superseded":
            return f"{name} was superseded at {where}"
        case "paused":
            return f"{name} is paused at {where}, on {acknowledged} of {counted(total, 'agent')}"
    if acknowledged < reached:
        return f"{name} waits for {reached - acknowledged} of {counted(reached, 'agent')} at {where}"
    return f"{name} is on {acknowledged} of {counted(total, 'agent')}, {where}"


def what_next(rollout: Seen, *, reached: int, acknowledged: int, now: datetime) -> str:
    """Return what happens without anyone acting, in a sentence or two."""
    if not is_open(rollout):
        return _after(rollout)
    if rollout["state"] == "paused":
        watched = " Guards watch on, and may still take it back." if rollout["strategy"] == "canary" else ""
        return f"Nothing happens until somebody resumes, promotes or aborts it.{watched}"
    if is_last_step(rollout):
        left = reached - acknowledged
        return f"It is done when {counted(left, 'more agent')} {'has' if left == 1 else 'have'} acknowledged it."
    following = step_words(steps_of(rollout)[rollout["step"] + 1])
    if rollout["baking_since"] is None:
        watched = f"they are watched for {duration(rollout['bake_seconds'])}, then it goes to {following}"
        return f"When all of this step have acknowledged it, {watched}."
    left = rollout["bake_seconds"] - baked_seconds(rollout, now)
    if left <= 0:
        return f"Its bake is over. With enough evidence that it does no harm it goes to {following}, without it pauses."
    begin = f"In {duration(left)} it goes to {following}, if its guards are kept by then; with too little to tell it"
    return f"{begin} pauses. A breach takes it back from everybody at once."


def _after(rollout: Seen) -> str:
    match rollout["state"]:
        case "rolled_back" | "aborted":
            return (
                f"Nothing more: what revision {rollout['base_revision']} said was published again, "
                "for everybody at once."
            )
        case "superseded":
            return "Nothing more: a newer revision took over from it."
    return "Nothing more: it is over."


# Guards


def figure(guard: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:,.0f} ms" if guard == "ttft_p95_rise" else f"{value * 100:.1f} %"


def limit(guard: str, bound: float) -> str:
    if guard == "ttft_p95_rise":
        return f"+ {bound * 100:g} %"
    return f"{'−' if guard == 'hit_ratio_drop' else '+'} {bound * 100:g} points"


def findings_words(findings: Sequence[Seen]) -> str:
    """Return "2 guards kept, 1 too little" for a finished bake."""
    if not findings:
        return "no guard was set"
    counts = {
        verdict: sum(finding["verdict"] == verdict for finding in findings)
        for verdict in ("kept", "breached", "too little")
    }
    parts = [f"{counted(count, 'guard')} {verdict}" for verdict, count in counts.items() if count]
    return ", ".join(parts)
