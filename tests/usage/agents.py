"""Agents that are nothing but what they tell: usage over real HTTP, gzipped, numbered as a spool does.

For what must be told thousands of times a second, told twice, split, late or wrong. Each knows what it told, added up
by itself, to compare with what is stored.
"""

import gzip
import http.client
import json
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import urlsplit

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.usage import CODES, COUNTS, MINUTE_SECONDS, Kind, Row, row_document
from engine_agent.contracts.wire import MISSED, Batch, Report, batch_encode
from engine_agent.sidecar.simulated import about
from tests.usage.recount import Sum

TIMEOUT_SECONDS = 60
MOST_TRIES = 600
AGAIN_SECONDS = 0.1
AWAY = (408, 429, 500, 502, 503, 504)


class NotTaken(AssertionError):
    """The door refused a whole batch."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Of rows: the ids that engines know."""

    organisation: str
    namespace: str


@dataclass(slots=True)
class TellingAgent:
    """`reports` are what it has told so far, in order: the first has number 1."""

    url: str
    name: str
    token: str = field(repr=False)
    spool: str = field(default_factory=lambda: f"spool-{uuid.uuid4().hex[:8]}")
    boot: str = field(default_factory=lambda: f"boot-{uuid.uuid4().hex[:8]}")
    reports: list[Report] = field(default_factory=list)
    acknowledged: int = 0
    records: int = 0
    refused_rows: list[Mapping[str, Any]] = field(default_factory=list)
    tries: int = 0
    forgotten: Sum = field(default_factory=Sum)
    _connection: http.client.HTTPConnection | None = None

    @classmethod
    def enrolled(cls, url: str, join_token: str, name: str) -> "TellingAgent":
        told = {"token": join_token, "kind": "engine", "name": name, "about": about({})}
        with closing(_connected(url)) as connection:
            status, answer = _post(connection, "enrol", canonical_json(told), {})
        if status != 201:
            raise NotTaken(f"{name} may not join: {status} {answer}")
        return cls(url, answer["agent"], answer["token"])

    def usage(self, rows: Sequence[Row], **changes: Any) -> Report:
        """A report of it, told from now on."""
        self.records += sum(row.counts.get("requests", 0) for row in rows)
        told = {"boot": self.boot, "upto": self.records, "rows": [row_document(row) for row in rows]}
        report = Report("usage", {**told, "totals": {}, "lost": 0, **changes})
        self.reports.append(report)
        return report

    def told(self) -> Sum:
        """What all its reports say, of customers."""
        rows = (row for report in self.reports for row in report.told["rows"] if row["kind"] == "customer")
        counts = [row["counts"] for row in rows]
        sums = [sum(one.get(name, 0) for one in counts) for name in ("requests", "prompt_tokens", "cached_tokens")]
        return self.forgotten + Sum(*sums)

    def forget(self) -> None:
        """The rows, which are many; what they come to is still known."""
        self.forgotten = self.told()
        for report in self.reports:
            cast(dict[str, Any], report.told)["rows"] = []

    def batch(self, first: int, last: int | None = None) -> Batch:
        """Of the reports with these numbers."""
        return Batch(time.time(), self.spool, first, self.reports[first - 1 : last], None)

    def deliver(self, *, most: int = 50) -> None:
        """Everything that is not acknowledged, again and again until it is."""
        for _ in range(MOST_TRIES):
            if self.acknowledged >= len(self.reports):
                return
            if not self.sends(self.batch(self.acknowledged + 1, self.acknowledged + most)):
                time.sleep(AGAIN_SECONDS)
        raise NotTaken(f"{self.name}: {self.acknowledged} of {len(self.reports)} reports were ever acknowledged")

    def sends(self, batch: Batch) -> bool:
        """Once. Whether it was answered well."""
        self.tries += 1
        try:
            status, answer = self.send(batch)
        except (OSError, http.client.HTTPException):
            self.close()
            return False
        if status == 200:
            self.acknowledged = max(self.acknowledged, answer["acknowledged"])
            self.refused_rows += answer.get("refused_rows", [])
            return True
        if status in AWAY:
            return False
        raise NotTaken(f"{self.name}: {status} {answer}")

    def close(self) -> None:
        """Its connection; the next batch opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, batch: Batch) -> tuple[int, Any]:
        return self.send_body(packed(batch))

    def send_body(self, body: bytes) -> tuple[int, Any]:
        """Already packed."""
        if self._connection is None:
            self._connection = _connected(self.url)
        return _post(self._connection, "reports", body, self._headers)

    @contextmanager
    def unheard(self, batch: Batch) -> Iterator[None]:
        """All of it is sent; in the end it is away, without having looked for an answer."""
        place, body = urlsplit(self.url), packed(batch)
        headers = {"host": place.netloc, "content-length": str(len(body)), **self._headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with socket.create_connection((place.hostname, place.port), TIMEOUT_SECONDS) as connection:
            connection.sendall(f"POST /agent/v1/reports HTTP/1.1\r\n{head}\r\n".encode() + body)
            yield

    def twin(self, **changes: Any) -> "TellingAgent":
        """Another with the same token and, unless told otherwise, the same spool; what it tells is told anew."""
        twin = replace(self, _connection=None, acknowledged=0, tries=0, refused_rows=[], **changes)
        twin.reports = [] if "spool" in changes else list(self.reports)
        return twin

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}", "content-encoding": "gzip"}


def packed(batch: Batch) -> bytes:
    return gzip.compress(batch_encode(batch), compresslevel=1)


def _connected(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)


def _post(
    connection: http.client.HTTPConnection, purpose: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, Any]:
    connection.request("POST", f"/agent/v1/{purpose}", body, {"content-type": "application/json", **headers})
    answer = connection.getresponse()
    content = answer.read()
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, content[:300]


# Rows


def minute_of(at: float) -> int:
    return int(at) // MINUTE_SECONDS * MINUTE_SECONDS


def row_of(whose: Whose, *, at: float | None = None, kind: Kind = "customer", **counts: int) -> Row:
    """One request of 100 tokens, 40 of them cached, unless told otherwise."""
    told = {"requests": 1, "prompt_tokens": 100, "cached_tokens": 40, **counts}
    return Row(
        minute_of(time.time() if at is None else at), whose.organisation, whose.namespace, "m", "fp8", kind, told
    )


def rows_by_chance(
    chance: random.Random, of: Sequence[Whose], count: int, *, minutes: Sequence[int], models: int = 1
) -> list[Row]:
    """Rows as engines fold them: sums, missed tokens and times, no two of one series in one minute."""
    keys = {(whose, minute, model) for whose in of for minute in minutes for model in range(models)}
    chosen = chance.sample(sorted(keys, key=repr), min(count, len(keys)))
    return [_row_by_chance(chance, whose, minute, f"m{model}") for whose, minute, model in chosen]


def _row_by_chance(chance: random.Random, whose: Whose, minute: int, model: str) -> Row:
    requests, prompt = chance.randrange(1, 40), chance.randrange(100, 20_000)
    cached = chance.randrange(0, prompt)
    counts = dict.fromkeys(COUNTS, 0) | {"requests": requests, "prompt_tokens": prompt, "cached_tokens": cached}
    counts["generated_tokens"] = chance.randrange(1, 500)
    times: dict[int, int] = {}
    for _ in range(min(requests, 8)):
        code = chance.randrange(CODES)
        times[code] = times.get(code, 0) + 1
    row = Row(minute, whose.organisation, whose.namespace, model, "fp8", "customer", counts)
    return replace(row, missed={chance.choice(MISSED): prompt - cached}, times=times)


def shuffled(chance: random.Random, deeds: Sequence[Callable[[], object]]) -> list[Callable[[], object]]:
    return chance.sample(list(deeds), len(deeds))
