"""Talking with whoever sits at the terminal: asking before what cannot be undone, and showing that work goes on."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.client.errors import ClientError
from controlplane.client.rest import Rest, segment

QUIET_SECONDS = 1.0
STEP_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
DONE = "done"


def agreed(question: str, word: str, *, yes: bool) -> None:
    """Returns when `word` was typed, or agreed to beforehand; raises otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ClientError(f"{question}: nobody to ask here; say --yes if it is meant")
    print(f"{question}. Type {word} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != word:
        raise ClientError("nothing was changed")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what takes so long, once it does."""
    over = threading.Event()
    told = threading.Thread(target=_tell, args=(what, over), daemon=True)
    told.start()
    try:
        yield
    finally:
        over.set()
        told.join()


def _tell(what: str, over: threading.Event) -> None:
    began, moves = time.monotonic(), sys.stderr.isatty()
    if over.wait(QUIET_SECONDS):
        return
    if not moves:
        print(f"{what} …", file=sys.stderr, flush=True)
        return
    while not over.wait(STEP_SECONDS):
        print(f"\r{what} … {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def operation_wait(rest: Rest, operation: str, *, seconds: float) -> dict[str, Any]:
    """The operation when it has ended, well or not."""
    deadline, pause = time.monotonic() + seconds, STEP_SECONDS
    with working("Waiting for receipts"):
        while True:
            found: dict[str, Any] = rest.get(f"/operations/{segment(operation)}").body
            if found["state"] != "running":
                return found
            if time.monotonic() + pause > deadline:
                missing = ", ".join(found["awaited_agents"])
                raise ClientError(f"operation {operation} still runs after {seconds:g} s; awaited: {missing}")
            rest.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
