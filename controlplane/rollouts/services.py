"""Users' actions on rollouts: publish with one, pause, resume, promote, abort. Each is one transaction.

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
    """A published revision and its rollout; None if it concerns no agent."""

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
    """Publish the level's next revision and begin its rollout, by default to all agents at once."""
    with audited() as journal:
        published = policies.policy_publish(actor=actor, place=place, policy=policy, expected=expected, note=note)
        return Outcome(published, _begin(journal, actor, place, published, rollout or ALL_AT_ONCE))


def policy_rollback(*, actor: Actor, place: Place, to_revision: int, expected: Expected, note: str = "") -> Outcome:
    """Publish the policy of an earlier revision as the next one, for all agents at once."""
    with audited() as journal:
        published = policies.policy_rollback(
            actor=actor, place=place, to_revision=to_revision, expected=expected, note=note
        )
        return Outcome(published, _begin(journal, actor, place, published, ALL_AT_ONCE))


def levels_published(actor: Actor, levels: Sequence[PolicyLevel]) -> None:
    """Supersede the open rollouts of these levels. Called in the transaction of every publish."""
    with audited() as journal:
        for rollout in _locked(Rollout.objects.filter(level__in=levels, state__in=Rollout.OPEN)):
            _end(rollout, State.SUPERSEDED, f"Revision {rollout.level.revision} was published.", now=timezone.now())
            record(journal, actor, "rollout.supersede", rollout)


def _begin(
    journal: Journal, actor: Actor, scope: Place, published: policies.Published, spec: RolloutSpec
) -> Rollout | None:
    level, now = published.level, timezone.now()
    groups = groups_below(scope)
    candidates = candidates_in(groups)
    if not candidates:
        return None
    _labels_check(spec, candidates)
    base, held_revisions = base_of(_superseded(level), level.revision)
    pk, steps = uuid4(), spec.stages
    is_canary = spec.strategy == "canary"
    reached_agents = reached_at(steps, 0, candidates, (), seed=str(pk)) if is_canary else frozenset[str]()
    operation = operation_begin(
        actor=actor,
        kind="publish",
        scope=scope.name,
        organisation=scope.organisation,
        namespace=scope.namespace,
        now=now,
        group_ids=groups,
    )
    rollout = Rollout.objects.create(
        pk=pk,
        level=level,
        place=scope.name,
        revision=level.revision,
        base_revision=base,
        strategy=spec.strategy,
        steps=spec.stored(),
        bake_seconds=spec.bake_seconds,
        guards=spec.guards.model_dump() if is_canary else {},
        reached=sorted(reached_agents),
        held_revisions=held_revisions,
        evidence={"grace_seconds": grace_seconds(scope, published, {base, *held_revisions.values()}, spec)}
        if is_canary
        else {},
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
    """Return the problems for which `policy_publish` would refuse this rollout. Queries only if it names labels."""
    if rollout is None or not any(isinstance(step, LabelStep) for step in rollout.stages):
        return []
    candidates = candidates_of(place)
    return _labels_problems(rollout, candidates) if candidates else []


def rollout_warnings(*, place: Place, rollout: RolloutSpec | None) -> list[PreviewWarning]:
    """Return warnings that are no reason to refuse this rollout. Queries only for a canary."""
    if rollout is None or rollout.strategy != "canary":
        return []
    candidates = candidates_of(place)
    engines = {candidate.agent for candidate in candidates if candidate.kind == "engine"}
    if not candidates or not engines <= reached_at(rollout.stages, 0, candidates, (), seed=""):
        return []
    reason = "the first step reaches every engine" if engines else "no engine serves this yet"
    message = f"A canary has nothing to compare with here: {reason}. It pauses at the end of its first bake."
    return [PreviewWarning("canary_alone", "rollout.steps", message)]


def _labels_problems(spec: RolloutSpec, candidates: Sequence[Candidate]) -> list[FieldProblem]:
    """Return a problem for each step with labels that no engine has: it would reach none, and find nothing wrong."""
    engines = [candidate for candidate in candidates if candidate.kind == "engine"]
    return [
        FieldProblem(f"rollout.steps.{number}.labels", f"no engine has {_labels_words(step)}")
        for number, step in enumerate(spec.stages)
        if isinstance(step, LabelStep) and not any(has_labels(engine, step.labels) for engine in engines)
    ]


def _labels_words(step: LabelStep) -> str:
    return " and ".join(f"{name}={value}" for name, value in sorted(step.labels.items()))


def _superseded(level: PolicyLevel) -> Rollout | None:
    predecessors = Rollout.objects.filter(level=level, revision=level.revision - 1, state=State.SUPERSEDED)
    return predecessors.order_by("-created_at").first()


def base_of(superseded: Rollout | None, revision: int) -> tuple[int, dict[str, int]]:
    """Return the revision that agents keep until they are reached, with exceptions by agent. A rollback restores it.

    It is the revision before, unless that was still being tried: then all agents keep theirs, and a rollback returns to
    the one before the trial.
    """
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


def grace_seconds(scope: Place, published: policies.Published, revisions: Iterable[int], spec: RolloutSpec) -> int:
    """Return how long misses of another format are caused by the change itself; 0 if no format changes.

    That is until the old blocks have ended, and for at least a bake. `revisions` are the present ones of affected
    agents.
    """
    *ancestors, after = published.chain
    old_policies = _said(published.level, revisions)
    chains = (
        [*ancestors, old_policy, *lower_policies]
        for lower_policies in _chains_below(scope)
        for old_policy in old_policies
    )
    lifetimes = [
        lifetime for chain in chains for lifetime in _lives(chain, [*ancestors, after, *chain[len(ancestors) + 1 :]])
    ]
    return max(spec.bake_seconds, *lifetimes) if lifetimes else 0


def _lives(old: Sequence[Values], new: Sequence[Values]) -> Iterator[int]:
    """Yield the longest life of blocks for every model with a changed format."""
    for model in (None, *models_named([*old, *new])):
        old_values, new_values = effective_values(old, model), effective_values(new, model)
        if old_values["kv_dtype"] != new_values["kv_dtype"]:
            yield max(old_values["ttl_seconds"], new_values["ttl_seconds"])


def _chains_below(scope: Place) -> Collection[tuple[Values, ...]]:
    """Return the policies of the levels below a place, each combination once."""
    if scope.namespace is not None:
        return [()]
    namespaces = {namespace.combination: namespace for namespace in namespaces_below(scope)}.values()
    if scope.organisation is not None:
        return [(namespace.namespace_policy,) for namespace in namespaces]
    return [(namespace.organisation_policy, namespace.namespace_policy) for namespace in namespaces]


def _said(level: PolicyLevel, numbers: Iterable[int]) -> list[Values]:
    """Return the policies of these revisions. Revision 0 is empty."""
    revision_numbers = sorted({*numbers})
    policy_values = list(
        PolicyRevision.objects.filter(level=level, number__in=revision_numbers).values_list("policy", flat=True)
    )
    return [{}, *policy_values] if 0 in revision_numbers else policy_values


# Actions on an open rollout


def rollout_pause(*, actor: Actor, rollout: Rollout, why: str = "") -> Rollout:
    """Stop reaching more agents until the rollout is resumed. Pausing twice changes nothing.

    Reached agents keep the revision and are still watched.
    """
    with audited() as journal:
        open_rollout = _open(rollout, "pause", actor)
        if open_rollout.state == State.PAUSED:
            return open_rollout
        open_rollout.state = State.PAUSED
        open_rollout.say(why or f"Paused by {actor.public_name}.")
        open_rollout.save(update_fields=["state", "why", "details"])
        record(journal, actor, "rollout.pause", open_rollout)
    return open_rollout


def rollout_resume(*, actor: Actor, rollout: Rollout) -> Rollout:
    """Resume the rollout where it was; a running one stays unchanged. A bake starts again, with its counters so far."""
    with audited() as journal:
        open_rollout = _open(rollout, "resume", actor)
        if open_rollout.state != State.PAUSED:
            return open_rollout
        open_rollout.state = State.RUNNING
        open_rollout.say("Resumed.")
        if open_rollout.baking_since is not None:
            open_rollout.baking_since = timezone.now()
        open_rollout.evidence = {name: part for name, part in open_rollout.evidence.items() if name != "integrity"}
        open_rollout.save(update_fields=["state", "why", "details", "baking_since", "evidence"])
        record(journal, actor, "rollout.resume", open_rollout)
    return open_rollout


def rollout_promote(*, actor: Actor, rollout: Rollout) -> Rollout:
    """Go to the next step at once, whatever the evidence of this one."""
    now = timezone.now()
    with audited() as journal:
        open_rollout = _open(rollout, "promote", actor)
        if open_rollout.step >= len(open_rollout.steps) - 1:
            raise NothingToPromote
        steps = steps_read(open_rollout.steps)
        scope = place_of(open_rollout.level)
        reached_agents = reached_at(
            steps, open_rollout.step + 1, candidates_of(scope), open_rollout.reached, seed=str(open_rollout.pk)
        )
        step_go(open_rollout, step=open_rollout.step + 1, reached=reached_agents, now=now)
        open_rollout.state = State.RUNNING
        open_rollout.say(f"Promoted by {actor.public_name}.")
        open_rollout.save(update_fields=["state", "why", "details"])
        record(journal, actor, "rollout.promote", open_rollout, reached=open_rollout.reached)
    return open_rollout


def rollout_abort(*, actor: Actor, rollout: Rollout) -> Rollout:
    """Return all agents at once to the policy from before."""
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
    """Publish the base's policy as the next revision, so that agents never return to an older one; its note says why.

    The system publishes it: it was in force before, and what an organisation may no longer set must not keep it from
    escaping something worse.
    """
    scope = place_of(rollout.level)
    with audited() as journal:
        levels_lock([scope], actor=SYSTEM)  # the locks of publishing come before the rollout's row
        open_rollout = _open(rollout, "take back", actor)
        if state == State.ABORTED and _is_way_back(open_rollout):
            raise RolloutIsWayBack(open_rollout.base_revision)
        open_rollout.evidence = {**open_rollout.evidence, **(evidence or {})}
        _end(open_rollout, state, why, details, now=timezone.now())
        record(journal, actor, _ENDING_VERBS[state], open_rollout, numbers=open_rollout.evidence.get("findings", []))
        note = _printable(f"Back to revision {open_rollout.base_revision}. {why}")[:NOTE_LENGTH]
        policy_rollback(actor=SYSTEM, place=scope, to_revision=open_rollout.base_revision, expected=None, note=note)
    return open_rollout


def _is_way_back(rollout: Rollout) -> bool:
    """Return whether this rollout is a rollback: aborting it would publish what was rolled back."""
    rollbacks = PolicyRevision.objects.filter(level=rollout.level, rolled_back_to__isnull=False)
    return rollbacks.filter(number=rollout.revision).exists()


def _printable(text: str) -> str:
    """Replace unprintable characters, which a note refuses. The text may contain a name."""
    return "".join(character if character.isprintable() else " " for character in text)


_ENDING_VERBS: Mapping[str, str] = {
    State.ABORTED: "rollout.abort",
    State.ROLLED_BACK: "rollout.roll-back",
}


# Parts that the sweep uses too


def rollout_lock(rollout: Rollout) -> Rollout:
    """Lock the rollout until commit and return its present row."""
    (locked_rollout,) = _locked(Rollout.objects.filter(pk=rollout.pk))
    return locked_rollout


def _locked(rollouts: Any) -> list[Rollout]:
    rows = rollouts.select_for_update(of=("self",), no_key=True).select_related(*WITH_ITS_PLACE)
    return list(rows.order_by("pk"))


def _open(rollout: Rollout, action: str, actor: Actor) -> Rollout:
    """Lock an open rollout until commit, or raise RolloutEnded or OperatorsRollout.

    Only operators may act on an operator's rollout: it may exceed the organisation's bounds.
    """
    locked_rollout = rollout_lock(rollout)
    if locked_rollout.author_is_operator and not actor.is_operator:
        raise OperatorsRollout(action)
    if locked_rollout.state not in Rollout.OPEN:
        raise RolloutEnded(locked_rollout.state, action)
    return locked_rollout


def step_go(rollout: Rollout, *, step: int, reached: frozenset[str], now: datetime) -> None:
    """Bring the revision to these agents from this commit on. Call it within the rollout's lock."""
    rollout.step, rollout.step_began_at, rollout.baking_since = step, now, None
    rollout.reached = sorted(reached)
    kept_fields = ("grace_seconds", "applied_at", "bakes")  # the rest belongs to the previous step
    rollout.evidence = {name: rollout.evidence[name] for name in kept_fields if name in rollout.evidence}
    rollout.say(f"Step {step + 1} of {len(rollout.steps)}: waiting for agents to acknowledge it.")
    rollout.save()
    if rollout.operation_id is not None:
        steps_add(rollout.operation_id, reached)


def rollouts_forget(*, now: datetime) -> None:
    """Delete rollouts that ended long ago. The audit trail keeps their history."""
    Rollout.objects.filter(finished_at__lt=now - KEPT).delete()


def rollout_finish(journal: Journal, rollout: Rollout, *, now: datetime) -> None:
    """End the rollout, because all agents have the revision. Call it within the rollout's lock."""
    _end(rollout, State.DONE, "Every agent has acknowledged it.", now=now)
    record(journal, SYSTEM, "rollout.done", rollout)


def rollout_drop(journal: Journal, rollout: Rollout, *, why: str, now: datetime) -> None:
    """End the rollout of a deleted level, which can neither advance nor roll back.

    Call it within the rollout's lock.
    """
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
    """Return whether all agents have the revision, or will get it with a later one because none waits any more."""
    return rollout.state == State.DONE or (rollout.state == State.SUPERSEDED and rollout.step >= len(rollout.steps) - 1)


def record(journal: Journal, actor: Actor, verb: str, rollout: Rollout, **fields: Any) -> None:
    """Write an audit record for the organisation that has the policy."""
    journal.record(
        actor,
        verb,
        rollout.place,
        organisation=place_of(rollout.level).organisation,
        after={"rollout": str(rollout.pk), "revision": rollout.revision, "step": rollout.step, "why": rollout.why}
        | fields,
    )
