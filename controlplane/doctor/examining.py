"""Run all checks concurrently, each with a time limit. A check that exceeds it is abandoned and reported."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from controlplane.doctor.context import Context, in_background
from controlplane.doctor.finding import TAKE_LONGER, Finding, NotExamined, not_examined
from controlplane.doctor.place import Place, Situation

SECONDS = 7.0


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one area. `name` appears in the report if it yields no finding."""

    area: str
    name: str
    look: Callable[[Context], Iterable[Finding]]
    situations: Sequence[Situation] = ()
    patience: float = 1.0  # its time limit, as a multiple of the usual one
    applies: Callable[[Place], bool] = lambda _: True


class Examinations:
    """Running checks. They start when the object is created."""

    def __init__(self, checks: Sequence[Check], context: Context, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.began = time.monotonic()
        self.running = [(check, in_background(partial(findings_of, check, context))) for check in checks]

    def progress(self) -> str:
        waiting = [check.name for check, future in self.running if not future.done()]
        done_count = len(self.running) - len(waiting)
        return f"Examining: {done_count} of {len(self.running)}, waiting for {', '.join(waiting[:3]) or 'nothing'}"

    def findings(self) -> list[tuple[str, Finding]]:
        """Return each finding with its area, in the order of the checks, when all are done or out of time."""
        area_findings = []
        for check, future in self.running:
            seconds = self.seconds * check.patience
            try:
                findings = future.result(max(self.began + seconds - time.monotonic(), 0.0))
            except TimeoutError:
                findings = [not_examined(check.name, f"it took longer than {seconds:.0f} s", TAKE_LONGER)]
            area_findings += [(check.area, finding) for finding in findings]
        return area_findings


def findings_of(check: Check, context: Context) -> list[Finding]:
    """Run the check and return its findings. A failing check is reported as not examined and stops no other."""
    try:
        return list(check.look(context))
    except NotExamined as reason:
        return [not_examined(check.name, str(reason), reason.do)]
    except ModuleNotFoundError as error:
        return [not_examined(check.name, f"{error.name} is not installed for this Python")]
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return [not_examined(check.name, f"{type(error).__name__}{': ' if first_line else ''}{first_line}")]
