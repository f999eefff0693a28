"""How a revision is to come to the agents, as a form: at once, or in steps under guards; and what the button says of
it. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.home.ttl_forms import SIZES, WORDS, split
from controlplane.dashboard.policies.fields import Typed, Unreadable, first
from controlplane.dashboard.policies.guard_forms import GuardForm, guard_form
from controlplane.rollouts.spec import MOST_STEPS, Guards, RolloutSpec
from controlplane.rollouts.stepping import Candidate, reached_at
from engine_agent.contracts.policy_fields import WEEK_SECONDS

DEFAULT = RolloutSpec(strategy="canary")
_STEPS = re.compile(r"[0-9]{1,3}(?:[ ,;→>%-]+[0-9]{1,3}){0,30}[ %]*")
_AMOUNT = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class RolloutForm:
    is_canary: bool
    steps: str
    bake: str
    unit: str
    units: tuple[tuple[str, str, bool], ...]
    guards: GuardForm
    problems: tuple[str, ...]  # those of guards stand beside them
    spec: RolloutSpec | None  # None: cannot be read


def rollout_form(typed: Typed) -> RolloutForm:
    """As it was sent, or as it is offered."""
    is_canary = first(typed, "strategy") == "canary"
    told = split(DEFAULT.bake_seconds)
    guards = guard_form(typed, is_judged=is_canary)
    unit = first(typed, "bake-unit", told["unit"])
    problems: tuple[str, ...] = ()
    spec: RolloutSpec | None = None
    try:
        spec = _spec(typed, guards.guards, is_canary=is_canary)
    except Unreadable as error:
        problems = (str(error),)
    return RolloutForm(
        is_canary,
        first(typed, "steps", ", ".join(str(one) for one in DEFAULT.stages)),
        first(typed, "bake", told["amount"]),
        unit,
        tuple((value, label, value == unit) for value, label in WORDS.items()),
        guards,
        problems,
        spec,
    )


def _spec(typed: Typed, guards: Guards | None, *, is_canary: bool) -> RolloutSpec | None:
    if not is_canary:
        return RolloutSpec()
    steps = first(typed, "steps", ", ".join(str(one) for one in DEFAULT.stages))
    if not _STEPS.fullmatch(steps):
        raise Unreadable("Steps are shares of the engines in percent, as 25, 50, 100.")
    shares = [int(one) for one in re.findall(r"[0-9]+", steps)]
    if len(shares) > MOST_STEPS:
        raise Unreadable(f"{len(shares)} steps are more than {MOST_STEPS}, the most there are.")
    bake = _bake(typed)
    try:
        return None if guards is None else _canary(shares, bake, guards)
    except ValidationError as error:
        raise Unreadable(_told(error)) from None


def _canary(shares: Sequence[int], bake: int, guards: Guards) -> RolloutSpec:
    return RolloutSpec(strategy="canary", steps=list(shares), bake_seconds=bake, guards=guards)


def _bake(typed: Typed) -> int:
    amount, unit = first(typed, "bake", "1"), first(typed, "bake-unit", "min")
    if not _AMOUNT.fullmatch(amount) or unit not in SIZES:
        raise Unreadable("How long each step bakes is a whole number with its unit, as 60 s.")
    seconds = int(amount) * SIZES[unit]
    if not 1 <= seconds <= WEEK_SECONDS:
        raise Unreadable(f"Each step bakes from 1 s to {duration(WEEK_SECONDS)}, not {amount} {unit}.")
    return seconds


def _told(error: ValidationError) -> str:
    one = error.errors()[0]
    if "steps" in one["loc"]:
        return "Each step is a share of the engines from 1 to 100 %."
    said = str(one["msg"]).removeprefix("Value error, ").removeprefix("steps: ")
    return f"Of the steps, {said} %." if said[-1].isdigit() else f"Of the steps, {said}."


def button_words(revision: int, spec: RolloutSpec | None, candidates: Sequence[Candidate]) -> str:
    """What will happen: "Publish revision 7 to 1 of 4 engines first"."""
    begin = f"Publish revision {revision}"
    if not candidates or spec is None:
        return begin
    engines = {one.agent for one in candidates if one.kind == "engine"}
    if spec.strategy == "canary" and len(spec.stages) > 1 and engines:
        reached = reached_at(spec.stages, 0, candidates, (), seed="") & engines
        return f"{begin} to {len(reached)} of {counted(len(engines), 'engine')} first"
    return f"{begin} to {counted(len(candidates), 'agent')}{' at once' if len(candidates) > 1 else ''}"
