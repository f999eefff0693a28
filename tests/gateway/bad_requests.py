"""What nobody should send to an OpenAI server, and somebody does: one case for each number, the same for the same seed.

A case is bytes and how they are sent. What may come back is the driver's business (`bad_clients.py`), but where only
one status is right, the case says which.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.gateway.snapshots import BOUND, EXPIRED, FOREIGN, KEY, MODEL, READING, SLEEPING
from tests.web.bad_bodies import BROKEN, NAMES, ODD_TEXTS, broken_body, odd_body

Ending = Literal["listens", "says no more", "closes", "resets"]  # what a client does that has sent all it will
ENDINGS: tuple[Ending, ...] = ("says no more", "closes", "resets")
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PATHS = (COMPLETIONS, CHAT, "/v1/models", "/health", "/metrics", "/v1/models/demo")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post", "BREW")
KEYS = (KEY, FOREIGN, BOUND, EXPIRED, READING, SLEEPING, "", "lk_nobody", "x" * 5_000, "ü", "a b", "lk_acme, lk_acme")
GOOD = {"model": MODEL, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
GOOD_BODY = json.dumps(GOOD).encode()
MORE_THAN_FITS = 300_000  # bytes of a head, and more than is read at once
MOST_REQUESTS = 5  # in one breath


@dataclass(frozen=True, slots=True)
class Case:
    number: int
    kind: str
    parts: tuple[bytes, ...] = field(repr=False)  # sent one after the other
    ending: Ending = "listens"
    statuses: frozenset[int] | None = None  # of its only answer, where that is certain
    has_body: bool = True  # what is answered; not so where HEAD was asked


def case(number: int, *, seed: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(tuple(KINDS), OFTEN)[0]
    return KINDS[kind](number, kind, chance)


def request(
    body: bytes,
    *,
    path: str = COMPLETIONS,
    method: str = "POST",
    key: str = KEY,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    return (
        head(method, path, {"authorization": f"Bearer {key}", "content-length": str(len(body)), **(headers or {})})
        + body
    )


def head(method: str, path: str, headers: Mapping[str, str], version: str = "HTTP/1.1") -> bytes:
    lines = [f"{method} {path} {version}", "host: x", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogatepass")


# Kinds


def _noise(number: int, kind: str, chance: random.Random) -> Case:
    """No HTTP at all, and heads with bytes that were hit."""
    if chance.random() < 0.4:
        return Case(number, kind, (chance.randbytes(chance.randrange(1, 3_000)),), chance.choice(ENDINGS))
    whole = bytearray(request(GOOD_BODY))
    for _ in range(chance.choice((1, 1, 2, 8))):
        whole[chance.randrange(len(whole) - len(GOOD_BODY))] = chance.randrange(256)
    return Case(number, kind, (bytes(whole),), "says no more", has_body=False)


def _places(number: int, kind: str, chance: random.Random) -> Case:
    odd = chance.choice(ODD_TEXTS).replace("\n", "%0A").replace("\r", "%0D")
    paths = (
        *PATHS,
        f"/{odd}",
        f"/v1/models/{odd}",
        "*",
        "http://x/v1/models",
        "/v1/../health",
        "//",
        "/v1/models?" + odd,
    )
    method, path = chance.choice(METHODS), chance.choice(paths)
    return Case(number, kind, (request(b"", method=method, path=path),), "says no more", has_body=method != "HEAD")


def _headers(number: int, kind: str, chance: random.Random) -> Case:
    named = dict(chance.sample(_ODD_HEADERS, chance.randrange(1, 4)))
    fields = {name: value(chance) for name, value in named.items()}
    return Case(
        number,
        kind,
        (request(GOOD_BODY, key=chance.choice((KEY, chance.choice(KEYS))), headers=fields),),
        "says no more",
    )


def _one_of(*values: str) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(values)


_ODD_HEADERS: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("authorization", _one_of("", "Bearer", "Basic eDp5", "Bearer \x7f", f"bearer  {KEY} ", f"Bearer {KEY}\tx")),
    ("x-luminet-namespace", _one_of("", "batch", "default", "nobody", "é", "x" * 9_000, "../default")),
    ("x-luminet-identity", lambda chance: chance.randbytes(40).hex()),
    ("x-luminet-agent", _one_of("agent-1", "")),
    ("content-encoding", _one_of("gzip", "identity", "IDENTITY", "br, gzip", "\x80")),
    ("content-type", _one_of("text/plain", "application/json; charset=utf-16", "", "multipart/form-data; boundary=x")),
    ("accept", _one_of("text/html", "*/*;q=0", "")),
    ("expect", _one_of("100-continue", "200-maybe")),
    ("upgrade", _one_of("websocket", "h2c", "TLS/1.0, HTTP/1.1")),
    ("connection", _one_of("upgrade", "close", "keep-alive, x-hop", "")),
    ("x-request-id", _one_of("", "same-again", "x" * 500, "a b", "\x1b[31m")),
    ("origin", _one_of("null", "http://evil.example")),
    ("cookie", lambda chance: "a=" + "b" * chance.randrange(20_000)),
    ("x-forwarded-for", _one_of("127.0.0.1", "::1, x")),
    ("x-long", lambda chance: "y" * chance.choice((10, 30_000, MORE_THAN_FITS))),
    ("range", _one_of("bytes=0-1")),
)


def _odd_bodies(number: int, kind: str, chance: random.Random) -> Case:
    """JSON, and nothing that a model takes."""
    path = chance.choice((COMPLETIONS, CHAT))
    return Case(number, kind, (request(odd_body(chance, chat=path == CHAT), path=path),))


def _broken_bodies(number: int, kind: str, chance: random.Random) -> Case:
    """No JSON: 400, in every case."""
    return Case(number, kind, (request(broken_body(chance)),), statuses=BROKEN)


def _unknown_models(number: int, kind: str, chance: random.Random) -> Case:
    body = json.dumps({**GOOD, "model": chance.choice(NAMES)}).encode()
    return Case(number, kind, (request(body),), statuses=frozenset((404,)))


def _lengths(number: int, kind: str, chance: random.Random) -> Case:
    """What a head says of its body and is not so."""
    much = str(chance.choice((2**24, 2**26 + 1, 2**40, 10**18, 10**30)))
    told = chance.choice(("-1", "x", "0x10", "1e3", " 5", "5, 6", "", "1" * 300, "3", str(len(GOOD_BODY) + 9), much))
    fields = {"content-length": told}
    if chance.random() < 0.2:
        fields["transfer-encoding"] = chance.choice(("chunked", "gzip, chunked", "identity", "chunked, chunked"))
    return Case(number, kind, (request(GOOD_BODY, headers=fields),), chance.choice(ENDINGS))


def _chunked(number: int, kind: str, chance: random.Random) -> Case:
    body, pieces = GOOD_BODY, []
    while body:
        size = chance.randrange(1, len(body) + 1)
        pieces.append(b"%x%b\r\n%b\r\n" % (size, chance.choice((b"", b";a=b", b";" + b"x" * 300)), body[:size]))
        body = body[size:]
    pieces.append(b"0\r\n" + chance.choice((b"", b"x-late: 1\r\n", b"content-length: 3\r\n")) + b"\r\n")
    if chance.random() < 0.7:
        place = chance.randrange(len(pieces))
        wrong = (b"zz\r\n", b"-1\r\n", b"f" * 40 + b"\r\n", pieces[place][:-2], pieces[place][2:], chance.randbytes(9))
        pieces[place] = chance.choice(wrong)
    start = head("POST", COMPLETIONS, {"authorization": f"Bearer {KEY}", "transfer-encoding": "chunked"})
    return Case(number, kind, (start, *pieces), "says no more")


def _halves(number: int, kind: str, chance: random.Random) -> Case:
    """It ends in the midst of the head, or of the body, with or without a word."""
    whole = request(GOOD_BODY)
    return Case(number, kind, (whole[: chance.randrange(1, len(whole))],), chance.choice(ENDINGS))


def _left(number: int, kind: str, chance: random.Random) -> Case:
    """Asked in full, for more than a word, and gone."""
    body = json.dumps({**GOOD, "max_tokens": 30, "stream": chance.random() < 0.5}).encode()
    return Case(number, kind, (request(body),), chance.choice(("closes", "resets")))


def _one_breath(number: int, kind: str, chance: random.Random) -> Case:
    """Several requests before the first answer, good and bad ones."""
    some = [chance.choice((GOOD_BODY, b"{", b"", b"[]")) for _ in range(chance.randrange(2, MOST_REQUESTS))]
    return Case(number, kind, (b"".join(request(one) for one in some),), "says no more")


def _too_long(number: int, kind: str, chance: random.Random) -> Case:
    """More than any context here holds: as tokens, or as bytes, of which nothing need be read."""
    if chance.random() < 0.8:
        body = json.dumps({**GOOD, "prompt": "word " * chance.randrange(9_000, 20_000)}).encode()
        return Case(number, kind, (request(body),), statuses=frozenset((400,)))
    body = b" " * chance.randrange(3_400_000, 4_000_000)
    return Case(number, kind, (request(body),), statuses=frozenset((413,)))


KINDS: Mapping[str, Callable[[int, str, random.Random], Case]] = {
    "noise": _noise,
    "methods and paths": _places,
    "headers": _headers,
    "odd bodies": _odd_bodies,
    "broken bodies": _broken_bodies,
    "unknown models": _unknown_models,
    "wrong lengths": _lengths,
    "chunks": _chunked,
    "halves": _halves,
    "asked and left": _left,
    "in one breath": _one_breath,
    "too long": _too_long,
}
OFTEN = [{"odd bodies": 6, "asked and left": 1, "too long": 0.3}.get(kind, 2) for kind in KINDS]
