"""Random input at the control plane's port: bytes that are nearly HTTP, live sockets, and what agents say, spoiled.

A case is what is sent; what may not come back is the same for all: a mistake of our own, or anything of our insides.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import random
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httptools

from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import COUNTED, TTFT_SECONDS, Batch, Report, batch_encode
from tests.gateway.bad_clients import Heard, connected
from tests.gateway.bad_requests import METHODS
from tests.support.spoiling import hit, spoiled
from tests.usage.agents import minute_of
from tests.web.bad_bodies import ODD_TEXTS

TOGETHER = 8
PATIENCE_SECONDS = 60.0
LET_IN = 101
INSIDES = (b"Traceback", b'File "/', b"psycopg", b"controlplane/", b"site-packages")
PATHS = (
    *("/", "/sign-in", "/healthz", "/readyz", "/metrics", "/static/", "/admin/", "/orgs/acme", "/invitation/x"),
    *("/api/v1/orgs", "/api/v1/whoami", "/api/v1/config/plan", "/api/v1/docs", "/agent/v1/reports", "/agent/v1/enrol"),
    *("/agent/v1/pins/x", "/ws/live/fleet", "/nowhere"),
)
_NONE: Mapping[str, str] = {}
HASH, AT = "ab" * 32, time.time()  # what is older than two days is refused for that alone


Ending = Literal["says no more", "listens", "is let in and says no more"]


@dataclass(frozen=True, slots=True)
class Sent:
    what: str
    parts: Sequence[bytes]
    ending: Ending = "says no more"


# Bytes


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    told = {"host": "127.0.0.1", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogatepass")


def http_case(number: int, *, seed: int, cookie: str) -> Sent:
    chance = random.Random(f"{seed} http {number}")
    kinds = (_mangled, _odd_place, _odd_headers, _framing)
    return chance.choice(kinds)(chance, cookie)


def _whole(chance: random.Random, cookie: str, headers: Mapping[str, str] = _NONE) -> bytes:
    body = chance.choice((b"", b"email=x&password=y", b'{"slug": "acme"}', b"{", b"\xff" * 40))
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")
    told = {"content-type": chance.choice(kinds), "content-length": str(len(body)), "cookie": cookie, **headers}
    method = chance.choice(("GET", "POST", *METHODS))
    return head("GET" if method == "HEAD" else method, chance.choice(PATHS), told) + body


def _mangled(chance: random.Random, cookie: str) -> Sent:
    return Sent("bytes that were hit", [hit(chance, _whole(chance, cookie))])


def _odd_place(chance: random.Random, cookie: str) -> Sent:
    odd = chance.choice(ODD_TEXTS).replace("\n", "%0A").replace("\r", "%0D").replace(" ", "%20")
    path = chance.choice((f"{chance.choice(PATHS)}?{odd}", f"/{odd}", f"/orgs/{odd}", "*", "//", "http://x/", "/..//"))
    return Sent("odd places", [head(chance.choice(("GET", "POST", "PUT")), path, {"cookie": cookie})], "listens")


def _odd_headers(chance: random.Random, cookie: str) -> Sent:
    odd = {
        "authorization": chance.choice(("", "Bearer", "Bearer \x7f", "Basic eA==", "Bearer lmk_" + "x" * 49)),
        "cookie": chance.choice(("luminet_session=" + "x" * 500, "=;=", "luminet_csrf=\x01", "a" * 9_000)),
        "host": chance.choice(("evil.example", "", "127.0.0.1:1:1", "[", "x" * 3_000)),
        "content-length": chance.choice(("-1", "x", "1e3", "9" * 30, "5, 6", "")),
        "x-forwarded-for": chance.choice(("127.0.0.1", "::1, x", "\x80", "," * 900)),
        "x-forwarded-proto": chance.choice(("https", "javascript", "")),
        "referer": chance.choice(("http://[", "//", "\x00")),
        "origin": chance.choice(("null", "http://[", "http://evil.example")),
        "if-match": chance.choice(("*", '"', "W/" * 99, '"' + "9" * 99 + '"')),
        "idempotency-key": chance.choice(("", "x" * 999, "\x7f")),
        "x-request-id": chance.choice(("a\x1b[31m", "x" * 999)),
        "content-encoding": chance.choice(("gzip", "br", "")),
        "upgrade": chance.choice(("websocket", "h2c")),
        "accept-encoding": "gzip;q=" + chance.choice(("x", "-1", "9" * 40)),
    }
    chosen = dict(chance.sample(sorted(odd.items()), 2))
    ending: Ending = "says no more" if "content-length" in chosen else "listens"
    return Sent("odd headers", [_whole(chance, cookie, chosen)], ending)


def _framing(chance: random.Random, cookie: str) -> Sent:
    framing = chance.choice(("chunked", "gzip, chunked", "identity", "chunked, chunked", "xchunked"))
    start = _whole(chance, cookie, {"transfer-encoding": framing})
    chunks = chance.choice((b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"-1\r\n", b"f" * 40 + b"\r\n"))
    return Sent("framing", [start, chunks])


# Live sockets


def socket_case(number: int, *, seed: int, cookie: str, origin: str) -> Sent:
    chance = random.Random(f"{seed} socket {number}")
    path = chance.choice(("/ws/live/fleet", "/ws/live/orgs/acme", "/ws/live/orgs/nobody", "/ws/", "/ws/live/orgs/%00"))
    since = chance.choice(
        ("", "?since=0", "?since=" + "9" * 400, "?since=%ff", "?since=-1&since=x", "?" + "a=b&" * 900)
    )
    told = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "origin": chance.choice((origin, origin, "http://evil.example", "null")),
        "sec-websocket-key": chance.choice((base64.b64encode(chance.randbytes(16)).decode(), "x", "")),
        "sec-websocket-version": chance.choice(("13", "13", "13", "8", "x")),
        "cookie": chance.choice((cookie, "", "luminet_session=x")),
    }
    frames = [_frame(chance) for _ in range(chance.randrange(5))]
    ending: Ending = "is let in and says no more" if chance.random() < 0.7 else "says no more"
    return Sent("a live socket", [head("GET", f"{path}{since}", told), *frames, CLOSING], ending)


def _frame(chance: random.Random) -> bytes:
    payload = chance.randbytes(chance.choice((0, 1, 125, 126, 70_000)))
    if chance.random() < 0.3:
        return hit(chance, frame(payload, opcode=chance.randrange(16)))
    return frame(payload, opcode=chance.choice((0, 1, 2, 8, 9, 10, 3, 15)), is_final=chance.random() < 0.8)


def frame(payload: bytes, *, opcode: int = 1, is_final: bool = True) -> bytes:
    """As a browser masks them, with a mask that changes nothing."""
    size = len(payload)
    length = (
        bytes([0x80 | size])
        if size < 126
        else (struct.pack("!BH", 0x80 | 126, size) if size < 65_536 else struct.pack("!BQ", 0x80 | 127, size))
    )
    return bytes([(0x80 if is_final else 0) | opcode]) + length + bytes(4) + payload


CLOSING = frame(struct.pack("!H", 1000), opcode=8)


# Agents


def _counted() -> dict[str, Any]:
    return {**dict.fromkeys(COUNTED, 1), "missed": {"cold": 1}, "ttft_buckets": [0] * (len(TTFT_SECONDS) + 1)}


HEARTBEAT: Mapping[str, Any] = {
    "boot": "b",
    "sequence": 1,
    "applied": {"hash": HASH, "generation": 1},
    "engine": {"boot": "e", "state": "ready", "why": "", "hash": HASH},
    "load": {"running": 1, "waiting": 0},
    "pool": {"capacity_bytes": 100, "used_bytes": 10},
    "counters": {"fleet": _counted()},
    "spooled": 0,
}
COUNTS = {"requests": 1, "prompt_tokens": 5, "generated_tokens": 1}
ROW = row_document(Row(minute_of(AT), "1", "1", "m", "fp8", "customer", COUNTS, {"cold": 5}, {3: 1}))
LEVEL = dict.fromkeys(("resident_bytes", "host_bytes", "expired_blocks", "evicted_blocks", "quota_blocks"), 1)
REPORTS: Sequence[Report] = (
    Report("about", {"backend": "paged", "version": "1", "models": [], "kv_dtypes": ["fp8"], "labels": {"a": "b"}}),
    Report("applied", {"generation": 1, "hash": HASH, "at": AT, "engine_boot": "e", "seconds": 0.1}),
    Report("rejected", {"generation": 1, "hash": HASH, "at": AT, "reason": "no"}),
    Report("purged", {"namespace": "1", "epoch": 1, "blocks": 1, "bytes": 1, "at": AT, "engine_boot": "e"}),
    Report("receipt", {"operation": "o-1", "ok": True, "at": AT, "result": {"problems": []}}),
    Report("refused", {"reason": "forged", "what": "x", "at": AT, "count": 1}),
    Report(
        "usage",
        {"boot": "e", "after": 0, "born": 1, "upto": 1, "rows": [ROW], "totals": {"1": [1, 1, 1]}, "lost": 0,
         "keys": [[minute_of(AT), "1", "m", None, 1, 5, 0, 1]]},
    ),
    Report(
        "levels",
        {"boot": "e", "at": AT, "pool": {"capacity_bytes": 9, "used_bytes": 1, "evictable_bytes": 1}, "preemptions": 0,
         "namespaces": {"1": {**LEVEL, "purged_blocks": 0}}, "formats": {"1": {"fp8": 1}},
         "evictions": [{"victim": "1", "by": "*", "cause": "pressure", "blocks": 1, "bytes": 1, "seconds_ago": 1.0}],
         "pins": [{"id": "x", "namespace": "1", "state": "resident", "is_warming": False, "wanted_tokens": 1,
                   "resident_tokens": 1, "resident_bytes": 1, "problem": None}]},
    ),
    Report(
        "gaps",
        {"boot": "e", "at": AT, "namespaces": {"1": {"prompt_tokens": 1, "ttls": [1, 2], "curves": [
            {"ttl_mode": "sliding", "limit_share": 1.0, "hit_ratios": [0.1, 0.2], "resident_bytes": [1, 2]}]}}},
    ),
    Report(
        "canary",
        {"at": AT, "agents": {"agent-1": {"rounds": {"isolated": 1}, "failure": None,
                                         "timing": {"pairs": 300, "auc": 0.5, "low": 0.45, "high": 0.55}}}},
    ),
    Report("diagnostics", {"boot": "e", "at": AT, "namespaces": {"1": {}}}),
)  # fmt: skip


def agent_case(number: int, *, seed: int, token: str, join: str) -> Sent:
    chance = random.Random(f"{seed} agent {number}")
    purpose, body = chance.choice((_told, _told, _told, _joining, _asking))(chance, number, join)
    packed = chance.random() < 0.2
    told = {
        "authorization": f"Bearer {token}"
        if chance.random() < 0.95
        else chance.choice(("Bearer x", "", f"Bearer {join}")),
        "content-type": "application/json",
        **({"content-encoding": "gzip"} if packed or chance.random() < 0.05 else {}),
    }
    body = gzip.compress(body, 1, mtime=0) if packed else body
    method = "POST" if body else chance.choice(("GET", "POST"))
    whole = head(method, f"/agent/v1/{purpose}", {**told, "content-length": str(len(body))}) + body
    return Sent(f"an agent's {purpose[:20]!a}", [whole], "listens")


def _told(chance: random.Random, number: int, join: str) -> tuple[str, bytes]:
    """Reports and a heartbeat: each time of a spool of its own, so that what it tells is new."""
    reports = chance.sample(REPORTS, chance.randrange(1, 4))
    batch = batch_encode(Batch(AT, f"spool-{number}", 1, reports, HEARTBEAT if chance.random() < 0.5 else None))
    if chance.random() < 0.2:
        return "reports", hit(chance, batch)
    return "reports", _bytes(spoiled(chance, json.loads(batch)))


def _joining(chance: random.Random, number: int, join: str) -> tuple[str, bytes]:
    about = {"backend": "simulated", "version": "1", "models": [], "kv_dtypes": [], "labels": {"a": "b"}, "address": ""}
    told = {"token": join, "kind": "engine", "name": f"random-{number}", "about": about}
    return "enrol", _bytes(spoiled(chance, told))


def _asking(chance: random.Random, number: int, join: str) -> tuple[str, bytes]:
    odd = chance.choice(ODD_TEXTS).replace("\n", "%0A").replace("\r", "%0D").replace(" ", "%20")
    path = chance.choice((f"snapshot?have={odd}", f"pins/{odd}", f"{odd}", "credentials", "reports/x", "enrol"))
    return path, chance.choice((b"", b"{}", b'{"rotate": 1}', b"[]", b"null", b"\xff"))


def _bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


# Sending


async def complaints(port: int, cases: Sequence[Sent]) -> tuple[list[str], dict[int, int]]:
    """Of all of them, so many at once; and how often which status came."""
    found, statuses, waiting = list[str](), dict[int, int](), iter(enumerate(cases))

    async def some() -> None:
        for number, one in waiting:
            answer, problem = await _answered(port, one)
            told = [problem] if problem else []
            told += [f"answered {status}" for status in answer.statuses if status >= 500 and status != 503]
            told += [f"told {part!r}" for part in INSIDES if any(part in body for body in answer.bodies)]
            found.extend(f"case {number}, {one.what}: {each}" for each in told)
            for status in answer.statuses:
                statuses[status] = statuses.get(status, 0) + 1

    await asyncio.gather(*(some() for _ in range(TOGETHER)))
    return found, statuses


async def _answered(port: int, one: Sent) -> tuple[Heard, str]:
    heard = _Heard()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), connected(port) as (reader, writer):
            with contextlib.suppress(OSError):  # who is cut off finds that it speaks to nobody
                writer.write(one.parts[0])
                if one.ending == "is let in and says no more":
                    heard.feed(await reader.read(65_536))
                for part in one.parts[1:]:
                    writer.write(part)
                    await writer.drain()
                if one.ending != "listens":
                    writer.write_eof()
                while data := await reader.read(65_536):
                    heard.feed(data)
                    if one.ending == "listens" and heard.statuses and heard.is_whole:
                        break
    except TimeoutError:
        return heard, "it was left waiting"
    except httptools.HttpParserError as problem:
        return heard, f"an answer that is no HTTP: {problem}"
    return heard, ""


class _Heard(Heard):
    """What comes behind a handshake is no HTTP any more."""

    _is_let_in = False

    def feed(self, data: bytes) -> None:
        if not self._is_let_in:
            try:
                super().feed(data)
            except httptools.HttpParserUpgrade:
                return
            except httptools.HttpParserError as problem:
                raise httptools.HttpParserError(f"{problem} in {data[:300]!r} after {self.statuses}") from None

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._parser.get_status_code() == LET_IN:
            self._is_let_in = True
            self.statuses.append(LET_IN)
            self.bodies.append(b"")
