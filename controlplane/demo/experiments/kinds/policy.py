"""Cut a TTL from minutes to five seconds: every agent acknowledges it, it takes effect, and it is rolled back."""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Count, Max, Q, QuerySet

from controlplane.dashboard.frame.words import counted, duration
from controlplane.demo.experiments.kinds.speaking import (
    POLICY,
    Messages,
    Voice,
    long_prompt,
    place_of,
    speaking,
)
from controlplane.demo.experiments.running import left_clear, left_put, left_take
from controlplane.demo.experiments.trials import About, NotPossible, Step
from controlplane.fleet.models import OperationStep
from controlplane.rollouts.services import Outcome, policy_publish, policy_rollback
from tenants.actor import Actor
from tenants.errors import StaleRevision
from tenants.levels import Place, level_of, levels_of
from tenants.policy import Policy, effective

ABOUT: Final = About(
    "policy",
    "Policy: a time to live of 5 s, and back",
    "In globex/experiments blocks shall live 5 s. All agents acknowledge, six seconds pass, the prompt comes again.",
    "The revision before is published again, also when something fails halfway.",
    "about 20 s",
)
KIND: Final = ABOUT.kind
SHORT_SECONDS: Final = 5
IDLE_SECONDS: Final = 6.0
ACKNOWLEDGED_SECONDS: Final = 20.0
BETWEEN_LOOKS: Final = 0.05
TOKENS: Final = 1_000
NOTE: Final = "Five minutes: felt within seconds, then taken back"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    done: int
    total: int
    last_at: datetime | None

    @property
    def is_whole(self) -> bool:
        return self.done == self.total


def policy(actor: Actor) -> Iterator[Step | None]:
    organisation, namespace = place_of(actor, POLICY)
    scope = Place(organisation, namespace)
    if undo(actor):
        yield Step("An earlier run was cut off: what it had left in force was taken back first.")
    level = level_of(scope)
    if not level.revision:
        raise NotPossible(f"{scope.name} has no revision of its own to go back to.")
    usual = effective(tuple(level.policy for level in levels_of(scope))).values["ttl_seconds"]
    with speaking(actor, POLICY) as globex:
        prompt = long_prompt(TOKENS)
        left_put(KIND, {"back_to": level.revision, "revision": level.revision + 1})
        try:
            yield from _felt(actor, scope, globex, prompt, level.revision, usual)
        finally:
            undo(actor)
    yield Step(f"The key is revoked, and {scope.name} is as it was: blocks live {duration(usual)}.")


def _felt(
    actor: Actor, scope: Place, globex: Voice, prompt: Messages, revision: int, usual: int
) -> Iterator[Step | None]:
    policy_fields = {**level_of(scope).policy, "ttl_seconds": SHORT_SECONDS}
    published = policy_publish(
        actor=actor,
        place=scope,
        policy=Policy.model_validate(policy_fields),
        expected=frozenset({revision}),
        note=NOTE,
    )
    yield Step(f"Revision {revision + 1} is published: {duration(usual)} → {duration(SHORT_SECONDS)}.")
    acknowledged = yield from _acknowledged(published)
    first = globex.ask(prompt)
    yield None
    second = globex.ask(prompt)
    yield Step(f"A prompt twice: {first.hit} %, then {second.hit} %.", [("First", first), ("At once again", second)])
    time.sleep(IDLE_SECONDS)
    third = globex.ask(prompt)
    reason = third.header("miss-reason")
    is_shown = acknowledged.is_whole and second.cached_tokens > 0 and not third.cached_tokens and reason == "expired"
    yield Step(
        f"{IDLE_SECONDS:.0f} idle seconds later the same prompt: {third.hit} %, first miss “{reason}”.",
        [(f"After {IDLE_SECONDS:.0f} idle s", third)],
        verdict=f"Policy: {duration(usual)} → {duration(SHORT_SECONDS)}, "
        f"{acknowledged.done}/{acknowledged.total} acknowledged, then “{reason}”",
        tone="ok" if is_shown else "warn",
    )
    rolled_back = policy_rollback(
        actor=actor, place=scope, to_revision=revision, expected=frozenset({revision + 1}), note="Five minutes: undone"
    )
    left_clear(KIND)
    yield Step(f"Revision {revision + 2} says again what revision {revision} said.")
    yield from _acknowledged(rolled_back)


def _acknowledged(outcome: Outcome) -> Generator[Step, None, Acknowledged]:
    """Wait for the agents to acknowledge the revision, yield the result as a step and return it."""
    if outcome.rollout is None:
        raise NotPossible("No agent serves this namespace, so nobody can acknowledge.")
    steps = OperationStep.objects.filter(operation=outcome.rollout.operation_id)
    end = time.monotonic() + ACKNOWLEDGED_SECONDS
    progress = _read(steps)
    while not progress.is_whole and time.monotonic() < end:
        time.sleep(BETWEEN_LOOKS)
        progress = _read(steps)
    agents = counted(progress.total, "agent")
    if progress.is_whole and progress.last_at is not None:
        took = (progress.last_at - outcome.rollout.created_at).total_seconds() * 1000
        yield Step(f"{progress.done}/{progress.total} acknowledged: the last of {agents} after {took:,.0f} ms.")
    else:
        yield Step(f"{progress.done}/{progress.total} acknowledged within {ACKNOWLEDGED_SECONDS:.0f} s.")
    return progress


def _read(steps: "QuerySet[OperationStep]") -> Acknowledged:
    is_done = Q(state=OperationStep.State.DONE)
    totals = steps.aggregate(done=Count("pk", filter=is_done), total=Count("pk"), last=Max("done_at", filter=is_done))
    return Acknowledged(totals["done"], totals["total"], totals["last"])


def undo(actor: Actor) -> bool:
    """Roll back the revision that a run left in force, unless someone has published since: their revision stays."""
    undo_fields = left_take(KIND)
    if undo_fields is None:
        return False
    organisation, namespace = place_of(actor, POLICY)
    scope, revision, back_to = (
        Place(organisation, namespace),
        int(str(undo_fields["revision"])),
        int(str(undo_fields["back_to"])),
    )
    is_undone = False
    if level_of(scope).revision == revision:
        try:
            policy_rollback(
                actor=actor,
                place=scope,
                to_revision=back_to,
                expected=frozenset({revision}),
                note="Five minutes: undone",
            )
            is_undone = True
        except StaleRevision:  # someone published in the meantime
            is_undone = False
    left_clear(KIND)
    return is_undone
