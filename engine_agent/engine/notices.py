"""The latest notices for the operator, each with a suggestion. They are also logged."""

import logging
import time
from collections import deque
from dataclasses import dataclass

LOG = logging.getLogger(__name__)
KEPT = 256
LOG_SECONDS = 1.0  # between two log lines of one kind: under pressure there are thousands


@dataclass(frozen=True, slots=True)
class Notice:
    at: float  # unix seconds
    kind: str
    namespace: str
    message: str


class Notices:
    def __init__(self) -> None:
        self.latest: deque[Notice] = deque(maxlen=KEPT)
        self.counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}

    def add(self, kind: str, namespace: str, message: str) -> None:
        self.latest.append(Notice(time.time(), kind, namespace, message))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_SECONDS) < LOG_SECONDS:
            return
        self._logged[kind] = now
        LOG.warning("%s in namespace %s: %s", kind, namespace, message)
