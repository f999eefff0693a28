"""All checks at once, each with its own time: whoever does not come back in time is left behind, and that is said."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread

from controlplane.doctor.finding import TAKE_LONGER, Finding, NotExamined, not_examined

SECONDS = 7.0


@dataclass(frozen=True, slots=True)
class Check:
    """`name` is what is said of it where it cannot tell anything itself."""

    area: str
    name: str
    look: Callable[[], Iterable[Finding]]
    patience: float = 1.0  # how much longer than others it may take


@dataclass(slots=True)
class Examination:
    check: Check
    done: Event = field(default_factory=Event)
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> None:
        self.findings = findings_of(self.check)
        self.done.set()


@dataclass(slots=True)
class Examinations:
    """Under way from when it is made."""

    checks: Sequence[Check]
    seconds: float = SECONDS
    began: float = field(default_factory=time.monotonic)
    under_way: list[Examination] = field(init=False)

    def __post_init__(self) -> None:
        self.under_way = [Examination(check) for check in self.checks]
        for one in self.under_way:
            # A daemon: what hangs in a library's call must not keep the command from ending.
            Thread(target=one.run, name=one.check.name, daemon=True).start()

    def progress(self) -> str:
        """For who waits."""
        waited = [one.check.name for one in self.under_way if not one.done.is_set()]
        done = len(self.under_way) - len(waited)
        return f"Examining: {done} of {len(self.under_way)}, waiting for {', '.join(waited[:3]) or 'nothing'}"

    def findings(self) -> list[tuple[str, Finding]]:
        """Each with its area, in the order of the checks; when the last is done, or its time is over."""
        return [(one.check.area, finding) for one in self.under_way for finding in self._of(one)]

    def _of(self, one: Examination) -> list[Finding]:
        seconds = self.seconds * one.check.patience
        if one.done.wait(max(self.began + seconds - time.monotonic(), 0.0)):
            return one.findings
        return [not_examined(one.check.name, f"it took longer than {seconds:.0f} s", TAKE_LONGER)]


def findings_of(check: Check) -> list[Finding]:
    """Whatever happens: a check that fails is one that says nothing, and never the end of the others."""
    try:
        return list(check.look())
    except NotExamined as reason:
        return [not_examined(check.name, str(reason), reason.do)]
    except ModuleNotFoundError as error:
        return [not_examined(check.name, f"{error.name} is not installed for this Python")]
    except Exception as error:
        told = (str(error).strip().splitlines() or [""])[0]
        return [not_examined(check.name, f"{type(error).__name__}{': ' if told else ''}{told}")]
