"""Errors about rollouts, with messages for people."""

from tenants.errors import Conflict, FieldProblem, NotPermitted


class RolloutEnded(Conflict):
    def __init__(self, state: str, action: str) -> None:
        super().__init__(
            [FieldProblem("rollout", f"it is {state.replace('_', ' ')}: there is nothing left to {action}")]
        )


class NothingToPromote(Conflict):
    def __init__(self) -> None:
        super().__init__([FieldProblem("rollout", "it has reached every agent: there is no step left to go to")])


class RolloutIsWayBack(Conflict):
    def __init__(self, base: int) -> None:
        message = f"it takes a revision back: taking it back would publish revision {base} again; publish what you want"
        super().__init__([FieldProblem("rollout", message)])


class OperatorsRollout(NotPermitted):
    def __init__(self, action: str) -> None:
        super().__init__(f"An operator began this rollout: only operators may {action} it.")
