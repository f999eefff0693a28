"""Measure how long one request takes, and how many tokens it gets."""

import time
from collections.abc import Callable

from engine_agent.contracts.identity import Identity
from engine_agent.engine.outputs import Delta
from engine_agent.journal.records import Closed, Opened
from engine_agent.server.metrics import Observer


class Meter:
    """The timing of one request from its complete receipt: a client's sending speed is not the engine's concern."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._latest: dict[int, float] = {}  # for each choice
        self._untold: list[float] = []  # gaps between tokens
        self._is_first_told = False
        self._told: tuple[Observer, Opened] | None = None
        self.tokens = 0

    def count(self, delta: Delta) -> None:
        if delta.token is None:
            return
        now = self._clock()
        if self._first is None:
            self._first = now
        if delta.choice in self._latest:
            self._untold.append(now - self._latest[delta.choice])
        self._latest[delta.choice] = now
        self.tokens += 1
        self._tell()

    def closed(self, number: int, identity: Identity, outcome: str, *, at: float) -> Closed:
        """Return the closing record. `number` is that of the record it closes."""
        first = None if self._first is None else (self._first - self._began) * 1_000
        duration = (self._clock() - self._began) * 1_000
        return Closed(number, identity.request_id, identity.attempt, at, outcome, self.tokens, first, duration)

    def opened(self, observer: Observer, opened: Opened) -> None:
        """Report every token at once from now on, starting with those counted before."""
        self._told = (observer, opened)
        self._tell()

    def _tell(self) -> None:
        if self._told is None or self._first is None:
            return
        observer, opened = self._told
        if not self._is_first_told:
            self._is_first_told = True
            observer.first_token(opened, self._first - self._began)
        observer.tokens(opened, self._untold)
        self._untold = []
