"""A client that asks without a pause, so that it is seen from when on it is refused, and that it stays so."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.waiting import wait_until

STAYS = 10  # answers in a row after which a refusal is believed to last


@dataclass(frozen=True, slots=True)
class Asked:
    began: float  # unix seconds
    ended: float
    status: int


@dataclass(slots=True)
class Asking:
    """One request after the other."""

    seen: list[Asked] = field(default_factory=list)

    def answered(self) -> None:
        """Wait until it is served."""
        wait_until(lambda: any(one.status == 200 for one in self.seen), "an answer")

    def refused(self, status: int) -> Asked:
        """The first refusal, with this status. Nothing that was asked after it was answered otherwise."""
        wait_until(lambda: [one.status for one in self.seen[-STAYS:]] == [status] * STAYS, f"{status} for good")
        statuses = [one.status for one in self.seen]
        first = statuses.index(status)
        assert set(statuses[first:]) == {status}, statuses
        return self.seen[first]


@contextmanager
def asking(ask: Callable[[], int]) -> Iterator[Asking]:
    """`ask`: one request's status."""
    found, is_over = Asking(), threading.Event()

    def run() -> None:
        while not is_over.is_set():
            began = time.time()
            status = ask()
            found.seen.append(Asked(began, time.time(), status))

    thread = threading.Thread(target=run, name="asking")
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
