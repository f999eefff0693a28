"""All checks at once, each with its own time. A check that does not return in time is left behind and reported."""

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
    """`name` stands for the check where it has no finding."""

    area: str
    name: str
    look: Callable[[Context], Iterable[Finding]]
    situations: Sequence[Situation] = ()
    patience: float = 1.0  # how much longer than others it may take
    applies: Callable[[Place], bool] = lambda _: True


class Examinations:
    """They start when this is made."""

    def __init__(self, checks: Sequence[Check], context: Context, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.began = time.monotonic()
        self.running = [(check, in_background(partial(findings_of, check, context))) for check in checks]

    def progress(self) -> str:
        waiting = [check.name for check, future in self.running if not future.done()]
        done = len(self.running) - len(waiting)
        return f"Examining: {done} of {len(self.running)}, waiting for {', '.join(waiting[:3]) or 'nothing'}"

    def findings(self) -> list[tuple[str, Finding]]:
        """Each with its area, in the order of the checks; when the last is done, or its time is over."""
        found = []
        for check, future in self.running:
            seconds = self.seconds * check.patience
            try:
                findings = future.result(max(self.began + seconds - time.monotonic(), 0.0))
            except TimeoutError:
                findings = [not_examined(check.name, f"it took longer than {seconds:.0f} s", TAKE_LONGER)]
            found += [(check.area, finding) for finding in findings]
        return found


def findings_of(check: Check, context: Context) -> list[Finding]:
    """A check that fails is not examined, and never ends the others."""
    try:
        return list(check.look(context))
    except NotExamined as reason:
        return [not_examined(check.name, str(reason), reason.do)]
    except ModuleNotFoundError as error:
        return [not_examined(check.name, f"{error.name} is not installed for this Python")]
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return [not_examined(check.name, f"{type(error).__name__}{': ' if first_line else ''}{first_line}")]
