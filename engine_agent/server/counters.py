"""Results of requests since the boot: customers' by scope, for the guards of rollouts, and all by namespace.

A scope is the fleet, an organisation or a namespace, in the spelling of wire.py. Counts are cumulative, so a reader
that polls rarely misses nothing. They are bounded: beyond the limit, further namespaces count for the fleet only.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

from engine_agent.contracts.wire import MISSED, TTFT_SECONDS
from engine_agent.journal.records import Closed, Opened

FLEET = "fleet"
_FAILED = ("error", "deadline")


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    missed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MISSED, 0))
    first_tokens: list[int] = field(default_factory=lambda: [0] * (len(TTFT_SECONDS) + 1))  # the last: slower

    def told(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "missed": {reason: tokens for reason, tokens in self.missed.items() if tokens},
            "ttft_buckets": list(accumulate(self.first_tokens)),
        }


class ScopeCounters:
    def __init__(self, most_namespaces: int) -> None:
        self._most = most_namespaces
        self._scopes: dict[str, _Counts] = {FLEET: _Counts()}
        self._namespaces: set[str] = set()

    def opened(self, record: Opened) -> None:
        for counts in self._of(record.organisation_id, record.namespace_id):
            counts.requests += 1
            counts.prompt_tokens += record.prompt_tokens
            counts.cached_tokens += record.cached_tokens
            for reason, tokens in record.missed.items():
                if reason in counts.missed:
                    counts.missed[reason] += tokens

    def first_token(self, record: Opened, seconds: float) -> None:
        bucket = bisect_left(TTFT_SECONDS, seconds)
        for counts in self._of(record.organisation_id, record.namespace_id):
            counts.first_tokens[bucket] += 1

    def closed(self, record: Opened, closed: Closed) -> None:
        if closed.outcome in _FAILED:
            for counts in self._of(record.organisation_id, record.namespace_id):
                counts.errors += 1

    def unanswered(self, organisation: str, namespace: str) -> None:
        """Count a request that failed before any response. No other counter includes it."""
        for counts in self._of(organisation, namespace):
            counts.requests += 1
            counts.errors += 1

    def of(self, scopes: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the counts of known scopes."""
        return {scope: self._scopes[scope].told() for scope in scopes if scope in self._scopes}

    def _of(self, organisation: str, namespace: str) -> Iterator[_Counts]:
        yield self._scopes[FLEET]
        if namespace not in self._namespaces:
            if len(self._namespaces) >= self._most:
                return
            self._namespaces.add(namespace)
        for scope in (f"org/{organisation}", f"ns/{namespace}"):
            if (counts := self._scopes.get(scope)) is None:
                counts = self._scopes[scope] = _Counts()
            yield counts


class EngineTotals:
    """The engine's own counts per namespace since its boot, for requests of every kind.

    They are independent of the journal, to be compared with the numbers derived from it.
    """

    def __init__(self) -> None:
        self._totals: dict[str, tuple[int, int, int, int]] = {}  # the last is a record's number; the latest come last

    def opened(self, record: Opened, number: int) -> None:
        """Count a record in the same step of the event loop in which the journal numbered it."""
        requests, prompt, cached, _ = self._totals.pop(record.namespace_id, (0, 0, 0, 0))
        counted = (requests + 1, prompt + record.prompt_tokens, cached + record.cached_tokens, number)
        self._totals[record.namespace_id] = counted

    def since(self, number: int) -> dict[str, list[int]]:
        """Return [requests, prompt tokens, cached tokens] of the namespaces with records after this number."""
        later_totals = takewhile(lambda entry: entry[1][3] > number, reversed(self._totals.items()))
        return {namespace: [requests, prompt, cached] for namespace, (requests, prompt, cached, _) in later_totals}
