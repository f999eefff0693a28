"""What people do with rollouts: publish with one, hold it, let it go on, take it back. Each is one transaction.

Locks are taken in the order of tenants/locks.py; a rollout's own row comes after those and before the audit trail.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from controlplane.rollouts import reach
from controlplane.rollouts.awaiting import steps_add, steps_give_up
from controlplane.rollouts.counting import closed
from controlplane.rollouts.errors import NothingToPromote, OperatorsRollout, RolloutEnded, RolloutIsWayBack
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.selectors import WITH_ITS_PLACE, candidates_in, candidates_of, groups_below
from controlplane.rollouts.spec import ALL_AT_ONCE, LabelStep, RolloutSpec, steps_read
from controlplane.rollouts.stepping import Candidate, has_labels, reached_at
from tenants.actor import SYSTEM, Actor
from tenants.audit import Journal, audited
from tenants.errors import FieldProblem, InvalidFields
from tenants.levels import Place, levels_lock, namespaces_below, place_of
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Policy, Values, effective_values, models_named
from tenants.preview import PreviewWarning
from tenants.revisions import Expected
from tenants.services import policies
from tenants.services.operations import operation_begin

State = Rollout.State
NOTE_LENGTH = 500
KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A revision, and how it comes to the agents; None where it concerns none."""

    published: policies.Published
    rollout: Rollout | None


def policy_publish(
    *,
    actor: Actor,
    place: Place,
    policy: Policy,
    expected: Expected,
    note: str = "",
    rollout: RolloutSpec | None = None,
) -> Outcome:
    """The next revision of that level, and its way to the agents: all at once, unless told otherwise."""
    with audited() as journal:
        published = policies.policy_publish(actor=actor, place=place, policy=policy, expected=expected, note=note)
        return Outcome(published, _begin(journal, actor, place, published, rollout or ALL_AT_ONCE))


def policy_rollback(*, actor: Actor, place: Place, to_revision: int, expected: Expected, note: str = "") -> Outcome:
    """What an earlier revision said, published as the next, for all agents at once."""
    with audited() as journal:
        published = policies.policy_rollback(
            actor=actor, place=place, to_revision=to_revision, expected=expected, note=note
        )
        return Outcome(published, _begin(journal, actor, place, published, ALL_AT_ONCE))


def levels_published(actor: Actor, levels: Sequence[PolicyLevel]) -> None:
    """Told of every publish, inside its transaction: what was under way for these levels is superseded."""
    with audited() as journal:
        for one in _locked(Rollout.objects.filter(level__in=levels, state__in=Rollout.OPEN)):
            _end(one, State.SUPERSEDED, f"Revision {one.level.revision} was published.", now=timezone.now())
            record(journal, actor, "rollout.supersede", one)


def _begin(
    journal: Journal, actor: Actor, place: Place, published: policies.Published, spec: RolloutSpec
) -> Rollout | None:
    level, now = published.level, timezone.now()
    groups = groups_below(place)
    candidates = candidates_in(groups)
    if not candidates:
        return None
    _labels_check(spec, candidates)
    base, held = base_of(_superseded(level), level.revision)
    pk, steps = uuid4(), spec.stages
    is_canary = spec.strategy == "canary"
    reached = reached_at(steps, 0, candidates, (), seed=str(pk)) if is_canary else frozenset[str]()
    operation = operation_begin(
        actor=actor,
        kind="publish",
        scope=place.name,
        organisation=place.organisation,
        namespace=place.namespace,
        now=now,
        group_ids=groups,
    )
    rollout = Rollout.objects.create(
        pk=pk,
        level=level,
        place=place.name,
        revision=level.revision,
        base_revision=base,
        strategy=spec.strategy,
        steps=spec.stored(),
        bake_seconds=spec.bake_seconds,
        guards=spec.guards.model_dump() if is_canary else {},
        reached=sorted(reached),
        held_revisions=held,
        evidence={"grace_seconds": grace_seconds(place, published, {base, *held.values()}, spec)} if is_canary else {},
        operation_id=operation.pk,
        why="Waiting for agents to acknowledge it.",
        step_began_at=now,
        created_by=actor.public_name,
        author_is_operator=actor.is_operator,
        created_at=now,
    )
    record(journal, actor, "rollout.begin", rollout, reached=rollout.reached, steps=rollout.steps)
    return rollout


def _labels_check(spec: RolloutSpec, candidates: Sequence[Candidate]) -> None:
    if problems := _labels_problems(spec, candidates):
        raise InvalidFields(problems)


def rollout_problems(*, place: Place, rollout: RolloutSpec | None) -> list[FieldProblem]:
    """With what `policy_publish` would refuse it. Asks nothing where it names no labels."""
    if rollout is None or not any(isinstance(step, LabelStep) for step in rollout.stages):
        return []
    candidates = candidates_of(place)
    return _labels_problems(rollout, candidates) if candidates else []


def rollout_warnings(*, place: Place, rollout: RolloutSpec | None) -> list[PreviewWarning]:
    """What is no reason to refuse it, but to choose another way. Asks nothing but of a canary."""
    if rollout is None or rollout.strategy != "canary":
        return []
    candidates = candidates_of(place)
    engines = {one.agent for one in candidates if one.kind == "engine"}
    if not candidates or not engines <= reached_at(rollout.stages, 0, candidates, (), seed=""):
        return []
    who = "the first step reaches every engine" if engines else "no engine serves this yet"
    message = f"A canary has nothing to compare with here: {who}. It pauses at the end of its first bake."
    return [PreviewWarning("canary_alone", "rollout.steps", message)]


def _labels_problems(spec: RolloutSpec, candidates: Sequence[Candidate]) -> list[FieldProblem]:
    """A step for labels that no engine has would reach nobody, and find nothing wrong with it."""
    engines = [one for one in candidates if one.kind == "engine"]
    return [
        FieldProblem(f"rollout.steps.{number}.labels", f"no engine has {_labels_words(step)}")
        for number, step in enumerate(spec.stages)
        if isinstance(step, LabelStep) and not any(has_labels(one, step.labels) for one in engines)
    ]


def _labels_words(step: LabelStep) -> str:
    return " and ".join(f"{name}={value}" for name, value in sorted(step.labels.items()))


def _superseded(level: PolicyLevel) -> Rollout | None:
    """The rollout that this revision has just taken over from."""
    before = Rollout.objects.filter(level=level, revision=level.revision - 1, state=State.SUPERSEDED)
    return before.order_by("-created_at").first()


def base_of(superseded: Rollout | None, revision: int) -> tuple[int, dict[str, int]]:
    """What agents hold until they are reached, and what a rollback leads to: the revision before, unless that was still
    being tried. Then everybody keeps what they hold, and the way back leads behind the trial."""
    if superseded is None or superseded.step >= len(superseded.steps) - 1:
        return revision - 1, {}
    return reach.superseded_by_next(
        reach.RolloutView(
            level=(None, None),
            revision=superseded.revision,
            newest_revision=superseded.revision,
            base_revision=superseded.base_revision,
            reached=frozenset(superseded.reached),
            held_revisions=superseded.held_revisions,
        )
    )


def grace_seconds(place: Place, published: policies.Published, before: Iterable[int], spec: RolloutSpec) -> int:
    """How long misses of another format are the change's own doing: until what was there has ended, or the bake has.
    `before` is what the agents hold that are to change. 0 where no format changes."""
    *above, after = published.chain
    olds = _said(published.level, before)
    chains = ([*above, old, *rest] for rest in _chains_below(place) for old in olds)
    lives = [life for chain in chains for life in _lives(chain, [*above, after, *chain[len(above) + 1 :]])]
    return max(spec.bake_seconds, *lives) if lives else 0


def _lives(old: Sequence[Values], new: Sequence[Values]) -> Iterator[int]:
    """How long blocks live at most, of every model whose format changes."""
    for model in (None, *models_named([*old, *new])):
        was, becomes = effective_values(old, model), effective_values(new, model)
        if was["kv_dtype"] != becomes["kv_dtype"]:
            yield max(was["ttl_seconds"], becomes["ttl_seconds"])


def _chains_below(place: Place) -> Collection[tuple[Values, ...]]:
    """What levels between that place and its namespaces say, each combination once."""
    if place.namespace is not None:
        return [()]
    below = {one.combination: one for one in namespaces_below(place)}.values()
    if place.organisation is not None:
        return [(one.namespace_policy,) for one in below]
    return [(one.organisation_policy, one.namespace_policy) for one in below]


def _said(level: PolicyLevel, numbers: Iterable[int]) -> list[Values]:
    """By these revisions; number 0 says nothing."""
    asked = sorted({*numbers})
    found = list(PolicyRevision.objects.filter(level=level, number__in=asked).values_list("policy", flat=True))
    return [{}, *found] if 0 in asked else found


# What people do with one that is under way


def rollout_pause(*, actor: Actor, rollout: Rollout, why: str = "") -> Rollout:
    """It reaches nobody else until it is resumed. Whoever is reached stays so, and is watched on. Twice is once."""
    with audited() as journal:
        found = _open(rollout, "pause", actor)
        if found.state == State.PAUSED:
            return found
        found.state = State.PAUSED
        found.say(why or f"Paused by {actor.public_name}.")
        found.save(update_fields=["state", "why", "details"])
        record(journal, actor, "rollout.pause", found)
    return found


def rollout_resume(*, actor: Actor, rollout: Rollout) -> Rollout:
    """From where it was. A bake begins anew, with what it has counted so far. Twice is once."""
    with audited() as journal:
        found = _open(rollout, "resume", actor)
        if found.state != State.PAUSED:
            return found
        found.state = State.RUNNING
        found.say("Resumed.")
        if found.baking_since is not None:
            found.baking_since = timezone.now()
        found.evidence = {name: kept for name, kept in found.evidence.items() if name != "integrity"}
        found.save(update_fields=["state", "why", "details", "baking_since", "evidence"])
        record(journal, actor, "rollout.resume", found)
    return found


def rollout_promote(*, actor: Actor, rollout: Rollout) -> Rollout:
    """To the next step at once, whatever is or is not known of this one."""
    now = timezone.now()
    with audited() as journal:
        found = _open(rollout, "promote", actor)
        if found.step >= len(found.steps) - 1:
            raise NothingToPromote
        steps = steps_read(found.steps)
        place = place_of(found.level)
        reached = reached_at(steps, found.step + 1, candidates_of(place), found.reached, seed=str(found.pk))
        step_go(found, step=found.step + 1, reached=reached, now=now)
        found.state = State.RUNNING
        found.say(f"Promoted by {actor.public_name}.")
        found.save(update_fields=["state", "why", "details"])
        record(journal, actor, "rollout.promote", found, reached=found.reached)
    return found


def rollout_abort(*, actor: Actor, rollout: Rollout) -> Rollout:
    """Back to what there was before, for everybody and at once."""
    return rollout_go_back(actor=actor, rollout=rollout, state=State.ABORTED, why=f"Aborted by {actor.public_name}.")


def rollout_go_back(
    *,
    actor: Actor,
    rollout: Rollout,
    state: str,
    why: str,
    details: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> Rollout:
    """The base's policy as the next revision, so that no agent ever goes back to an older one; with why in its note.

    It is published by the system: it was in force before, and whatever somebody may no longer ask for must not keep
    them from getting out of something worse.
    """
    place = place_of(rollout.level)
    with audited() as journal:
        levels_lock([place], actor=SYSTEM)  # what publishing locks comes before the rollout's own row
        found = _open(rollout, "take back", actor)
        if state == State.ABORTED and _is_way_back(found):
            raise RolloutIsWayBack(found.base_revision)
        found.evidence = {**found.evidence, **(evidence or {})}
        _end(found, state, why, details, now=timezone.now())
        record(journal, actor, _ENDING_VERBS[state], found, numbers=found.evidence.get("findings", []))
        note = _printable(f"Back to revision {found.base_revision}. {why}")[:NOTE_LENGTH]
        policy_rollback(actor=SYSTEM, place=place, to_revision=found.base_revision, expected=None, note=note)
    return found


def _is_way_back(rollout: Rollout) -> bool:
    """Behind it is what was taken back."""
    ways_back = PolicyRevision.objects.filter(level=rollout.level, rolled_back_to__isnull=False)
    return ways_back.filter(number=rollout.revision).exists()


def _printable(text: str) -> str:
    """In it may be a name, and what cannot be shown would be refused as a note."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


_ENDING_VERBS: Mapping[str, str] = {
    State.ABORTED: "rollout.abort",
    State.ROLLED_BACK: "rollout.roll-back",
}


# Parts that the sweep does, too


def rollout_lock(rollout: Rollout) -> Rollout:
    """As it is now, until commit."""
    (found,) = _locked(Rollout.objects.filter(pk=rollout.pk))
    return found


def _locked(rollouts: Any) -> list[Rollout]:
    rows = rollouts.select_for_update(of=("self",), no_key=True).select_related(*WITH_ITS_PLACE)
    return list(rows.order_by("pk"))


def _open(rollout: Rollout, deed: str, actor: Actor) -> Rollout:
    """Until commit. What an operator began is no organisation's to decide about: it may lead past its bounds."""
    found = rollout_lock(rollout)
    if found.author_is_operator and not actor.is_operator:
        raise OperatorsRollout(deed)
    if found.state not in Rollout.OPEN:
        raise RolloutEnded(found.state, deed)
    return found


def step_go(rollout: Rollout, *, step: int, reached: frozenset[str], now: datetime) -> None:
    """These agents, from this commit on. Within the rollout's lock."""
    rollout.step, rollout.step_began_at, rollout.baking_since = step, now, None
    rollout.reached = sorted(reached)
    kept = ("grace_seconds", "applied_at", "bakes")  # the rest is of the step that was
    rollout.evidence = {name: rollout.evidence[name] for name in kept if name in rollout.evidence}
    rollout.say(f"Step {step + 1} of {len(rollout.steps)}: waiting for agents to acknowledge it.")
    rollout.save()
    if rollout.operation_id is not None:
        steps_add(rollout.operation_id, reached)


def rollouts_forget(*, now: datetime) -> None:
    """Those that ended long ago. What became of them stays in the audit trail."""
    Rollout.objects.filter(finished_at__lt=now - KEPT).delete()


def rollout_finish(journal: Journal, rollout: Rollout, *, now: datetime) -> None:
    """Everybody holds it. Within the rollout's lock."""
    _end(rollout, State.DONE, "Every agent has acknowledged it.", now=now)
    record(journal, SYSTEM, "rollout.done", rollout)


def rollout_drop(journal: Journal, rollout: Rollout, *, why: str, now: datetime) -> None:
    """Its level is gone: there is nothing to go on with or back to. Within the rollout's lock."""
    _end(rollout, State.ABORTED, why, now=now)
    record(journal, SYSTEM, "rollout.abort", rollout)


def _end(rollout: Rollout, state: str, why: str, details: str = "", *, now: datetime) -> None:
    rollout.state, rollout.finished_at = state, now
    rollout.evidence = closed(rollout.evidence)
    rollout.say(why, details)
    rollout.save(update_fields=["state", "why", "details", "finished_at", "evidence"])
    if rollout.operation_id is not None and not _is_held_by_all(rollout):
        steps_give_up(rollout.operation_id, f"the rollout is {state.replace('_', ' ')}", now=now)


def _is_held_by_all(rollout: Rollout) -> bool:
    """Or will be by whoever is not there yet, with what comes after it: nobody is held back behind it any more."""
    return rollout.state == State.DONE or (rollout.state == State.SUPERSEDED and rollout.step >= len(rollout.steps) - 1)


def record(journal: Journal, actor: Actor, verb: str, rollout: Rollout, **more: Any) -> None:
    """What became of it, for the audit trail of whose policy it is."""
    journal.record(
        actor,
        verb,
        rollout.place,
        organisation=place_of(rollout.level).organisation,
        after={"rollout": str(rollout.pk), "revision": rollout.revision, "step": rollout.step, "why": rollout.why}
        | more,
    )
