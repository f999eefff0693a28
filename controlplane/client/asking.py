"""Dialogue at the terminal: confirm what cannot be undone, and show progress of slow work."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.client.errors import ClientError
from controlplane.client.rest import Rest, segment
from controlplane.client.shapes import shaped
from controlplane.client.tables import plain

QUIET_SECONDS = 1.0
STEP_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
DONE = "done"
STARTED = {"operation": str}  # the response to an action that takes time
SEEN = {"running": int | None, "waiting": int | None, "last_seen_at": str | None}
OPERATION = {"state": str, "awaited_agents": [str]}


def agreed(question: str, word: str, *, yes: bool) -> None:
    """Return if the user types `word` or has agreed with --yes; raise ClientError otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ClientError(f"{question}: nobody to ask here; say --yes if it is meant")
    word = plain(word)
    print(f"{plain(question)}. Type {word} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != word.strip():
        raise ClientError("nothing was changed")


@contextmanager
def working(message: str | Callable[[], str]) -> Iterator[None]:
    """Show on standard error what is running, once it takes a while."""
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(message, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(message: str | Callable[[], str], over: threading.Event) -> None:
    began, moves = time.monotonic(), sys.stderr.isatty()
    if over.wait(QUIET_SECONDS):
        return
    if not moves:
        print(f"{_said(message)} …", file=sys.stderr, flush=True)
        return
    while not over.wait(STEP_SECONDS):
        print(f"\r{_said(message)} … {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _said(message: str | Callable[[], str]) -> str:
    return message if isinstance(message, str) else message()


def idle_wait(rest: Rest, agent: str, *, deadline: float) -> None:
    """Return when a drained agent has reported, after this call, that it serves no request any more.

    Only a heartbeat proves that: a report moves `last_seen_at` and leaves the previous heartbeat's numbers.
    """
    path, first_heartbeat, pause = f"/fleet/agents/{segment(agent)}", None, STEP_SECONDS
    with working(f"Waiting for the last answers of {plain(agent)}"):
        while True:
            status = shaped(rest.get(path).body, SEEN)
            heartbeat = status.get("heartbeat", status["last_seen_at"])  # an older control plane has no such field
            first_heartbeat = heartbeat if first_heartbeat is None else first_heartbeat
            open_requests = (status["running"] or 0) + (status["waiting"] or 0)
            if open_requests == 0 and heartbeat != first_heartbeat:
                return
            if time.monotonic() + pause > deadline:
                raise ClientError(
                    f"{plain(agent)} still answers {open_requests} requests, or has not said anything: wait again"
                )
            rest.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)


def operation_wait(rest: Rest, operation: str, *, seconds: float) -> dict[str, Any]:
    """Wait until the operation has ended, successfully or not, and return it."""
    deadline, pause = time.monotonic() + seconds, STEP_SECONDS
    with working("Waiting for receipts"):
        while True:
            status: dict[str, Any] = shaped(rest.get(f"/operations/{segment(operation)}").body, OPERATION)
            if status["state"] != "running":
                return status
            if time.monotonic() + pause > deadline:
                missing = ", ".join(status["awaited_agents"])
                raise ClientError(f"operation {operation} still runs after {seconds:g} s; awaited: {missing}")
            rest.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
