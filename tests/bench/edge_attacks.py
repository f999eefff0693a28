"""One client that attacks an HTTP port over one connection after the other, in a process of its own.

`python -m tests.bench.edge_attacks ATTACK HOST PORT` goes on until it is stopped, and prints `begun` once the server
has what the attack starts with, or has refused it.
"""

import contextlib
import itertools
import socket
import sys
from collections.abc import Iterator

BEGUN = "begun"
MEBIBYTE = 2**20
PIECE_BYTES = 65_536
SECONDS = 30.0  # for the server to take one more piece
START = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"


def _filler(mebibytes: int) -> Iterator[bytes]:
    return itertools.repeat(b"y" * PIECE_BYTES, mebibytes * MEBIBYTE // PIECE_BYTES)


def _drips() -> Iterator[bytes]:
    yield START + b"x: "
    yield from _filler(40)
    yield b""
    yield from itertools.repeat(b"y")


def _large_head() -> Iterator[bytes]:
    yield START + b"x: "
    yield from _filler(48)
    yield b"\r\n\r\n"


def _many_headers() -> Iterator[bytes]:
    yield START
    yield from itertools.repeat(b"a:\r\n" * (PIECE_BYTES // 4), 48 * MEBIBYTE // PIECE_BYTES)
    yield b"\r\n"


def _trailers() -> Iterator[bytes]:
    yield CHUNKED + b"1\r\nx\r\n0\r\n"
    yield from itertools.repeat(b"authorization: Bearer %b\r\n" % (b"y" * 1_000), 48 * 1_024)
    yield b""
    yield from itertools.repeat(b"y")


def _small_chunks() -> Iterator[bytes]:
    yield CHUNKED
    yield from itertools.repeat(b"1\r\nx\r\n" * (PIECE_BYTES // 6), 48 * MEBIBYTE // PIECE_BYTES)


ATTACKS = {
    "drips behind 40 MiB of a head": _drips,
    "heads of 48 MiB": _large_head,
    "heads of 12 million headers": _many_headers,
    "trailers of 48 MiB, then drips": _trailers,
    "bodies in chunks of one byte": _small_chunks,
}


def attack(name: str, host: str, port: int) -> None:
    """Over and over; an empty piece, or the end, is where what it starts with has been sent."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=SECONDS) as caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                for piece in ATTACKS[name]():
                    if piece:
                        caller.sendall(piece)
                    else:
                        print(BEGUN, flush=True)
            print(BEGUN, flush=True)
            caller.recv(PIECE_BYTES)


if __name__ == "__main__":
    attack(sys.argv[1], sys.argv[2], int(sys.argv[3]))
