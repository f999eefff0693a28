"""Policy revisions as marks in a chart and rows of a table: when, what, why, forecast and measured effect. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.analytics.hindsight import FIELDS as FORETOLD
from controlplane.analytics.predicting import Effect
from controlplane.dashboard.frame.charts import Mark
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.effect_words import error_words, measured_words, predicted_words
from tenants.policy import Change

CLOSE = 8  # a chart has room for so many labels side by side
TOO_LITTLE = "too little asked to say"
UNFORETOLD = "not predicted"


@dataclass(frozen=True, slots=True)
class Touched:
    """A revision and the changes it made to the policy in force."""

    at: datetime
    number: int
    place: str  # in words
    short: str  # the same for a chart
    address: str  # of its revisions; empty if the reader may not see them
    changes: tuple[Change, ...]
    note: str
    is_rollback: bool
    effect: Effect

    @property
    def predicted(self) -> str:
        is_foretellable = any(change.field in FORETOLD for change in self.changes)
        return predicted_words(self.effect) or (TOO_LITTLE if is_foretellable else UNFORETOLD)

    @property
    def error(self) -> str:
        return error_words(self.effect)

    @property
    def measured(self) -> str:
        return measured_words(self.effect)


def marks_of(revisions: Sequence[Touched], *, seconds: int) -> list[Mark]:
    """Return the marks for a chart of so many seconds; revisions too close for two labels share one."""
    groups: list[list[Touched]] = []
    for revision in sorted(revisions, key=lambda revision: revision.at):
        if groups and (revision.at - groups[-1][0].at).total_seconds() < seconds / CLOSE:
            groups[-1].append(revision)
        else:
            groups.append([revision])
    return [Mark(group[-1].at.timestamp(), _label(group)) for group in groups]


def _label(group: Sequence[Touched]) -> str:
    if len(group) > 1:
        return counted(len(group), "change")
    return f"{group[0].short} rev {group[0].number}".strip()


def marks_title(revisions: Sequence[Touched], *, window: str) -> str:
    if not revisions:
        return f"No policy changed in the last {window}"
    return f"{counted(len(revisions), 'policy change')} in the last {window}"
