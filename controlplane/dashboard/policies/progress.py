"""Progress of a policy's open rollouts: while agents differ, no page presents new values as in force everywhere.

`policy_progress` and `progress_by_namespace` read; everything else is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.dashboard.frame.words import counted
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.selectors import acknowledgements, agents_of, groups_below, rollouts_open
from tenants.levels import Place
from tenants.models import Namespace, PolicyLevel


@dataclass(frozen=True, slots=True)
class Progress:
    """One open rollout, counted over the agents that serve the page's level."""

    revision: int
    earlier: str  # what the other agents apply: "revision 6"
    step: int  # from 1
    steps: int
    is_paused: bool
    engines_reached: int
    engines: int
    acknowledged: int
    agents: int  # expected to acknowledge it by the end

    @property
    def is_partial(self) -> bool:
        return self.engines_reached < self.engines


def policy_progress(scope: Place, levels: Sequence[PolicyLevel]) -> list[Progress]:
    """Return the open rollouts of these levels, the least advanced first."""
    rollouts = list(rollouts_open().filter(level__in=[level.pk for level in levels]))
    if not rollouts:
        return []
    engines = set(agents_of(groups_below(scope)).filter(kind="engine").values_list("pk", flat=True))
    counts = acknowledgements([rollout.operation_id for rollout in rollouts if rollout.operation_id])
    rollouts_progress = [_progress(rollout, engines, counts.get(rollout.operation_id, (0, 0))) for rollout in rollouts]
    return sorted(rollouts_progress, key=lambda progress: progress.engines_reached)


def progress_by_namespace(namespaces: Sequence[Namespace]) -> dict[int, str]:
    """Return a note for each namespace whose policy only some engines apply, in a constant number of queries."""
    rollouts = list(rollouts_open().select_related("level"))
    if not rollouts or not namespaces:
        return {}
    engines: dict[int, set[str]] = {namespace.group_id: set() for namespace in namespaces}
    for agent, group in agents_of(engines).filter(kind="engine").values_list("pk", "group_id"):
        engines[group].add(agent)
    notes = {}
    for namespace in namespaces:
        open_rollouts = [rollout for rollout in rollouts if _concerns(rollout.level, namespace)]
        progress = [_progress(rollout, engines[namespace.group_id], (0, 0)) for rollout in open_rollouts]
        if words := so_far(sorted(progress, key=lambda rollout_progress: rollout_progress.engines_reached)):
            notes[namespace.pk] = words.removeprefix(", ")
    return notes


def _concerns(level: PolicyLevel, namespace: Namespace) -> bool:
    if level.namespace_id is not None:
        return level.namespace_id == namespace.pk
    return level.organisation_id in (None, namespace.organisation_id)


def _progress(rollout: Rollout, engines: set[str], counts: tuple[int, int]) -> Progress:
    return Progress(
        revision=rollout.revision,
        earlier="earlier revisions" if rollout.held_revisions else f"revision {rollout.base_revision}",
        step=min(rollout.step + 1, len(rollout.steps)),
        steps=len(rollout.steps),
        is_paused=rollout.state == Rollout.State.PAUSED,
        engines_reached=len(engines & set(rollout.reached)),
        engines=len(engines),
        acknowledged=counts[0],
        agents=counts[1],
    )


def so_far(progress: Sequence[Progress]) -> str:
    """Return a title's suffix while only some engines apply the policy: ", on 1 of 3 engines so far"."""
    if not progress or not progress[0].is_partial:
        return ""
    least = progress[0]
    return f", on {least.engines_reached} of {counted(least.engines, 'engine')} so far"


def progress_words(progress: Sequence[Progress]) -> str:
    """Return each rollout's progress: "2 of 3 agents acknowledged revision 7, step 1 of 3; the other …"."""
    return ". ".join(map(_words, progress))


def _words(progress: Progress) -> str:
    step = f", step {progress.step} of {progress.steps}" if progress.steps > 1 else ""
    paused = ", paused" if progress.is_paused else ""
    other_engines = f"; the other engines keep {progress.earlier}" if progress.is_partial else ""
    acknowledged = (
        f"{progress.acknowledged} of {counted(progress.agents, 'agent')} acknowledged revision {progress.revision}"
    )
    return f"{acknowledged}{step}{paused}{other_engines}"
