"""Kill an engine, then the web process, under load: measure who answers, the restart times and the counted tokens.

It runs in a separate process, because the web process ends during it. The stack's supervisor restarts what it kills.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import DatabaseError, connection

from controlplane.analytics.reconciliations import reconciliation_newest
from controlplane.analytics.selectors import database_now
from controlplane.dashboard.experiments.asking import CutShort, NotAnswered
from controlplane.demo.experiments.kinds.speaking import FIRST, Voice, speaking
from controlplane.demo.experiments.trials import About, NotPossible, Step
from tenants.actor import Actor

ABOUT: Final = About(
    "fault",
    "Fault: an engine is killed, then the web process",
    "While one request after the other is sent, one engine gets SIGKILL, and when it is back, the process that serves "
    "this very page. This page will lose its server for some seconds.",
    "The stack’s supervisor starts both again.",
    "about 2 min",
)
ENGINE, WEB = "agent-1-engine", "web"
STATUS_SECONDS: Final = 20.0
BACK_SECONDS: Final = 90.0
RECONCILED_SECONDS: Final = 200.0  # reconciliation runs once a minute, and lost reports are resent first
PAUSE_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    pid: int
    state: str


@dataclass(frozen=True, slots=True)
class Asked:
    agent: str  # empty: not answered
    why: str = ""
    is_cut_short: bool = False  # the response says that the engine died: no other can continue it


@dataclass(frozen=True, slots=True)
class Differences:
    at: datetime
    tokens: int


def fault(actor: Actor) -> Iterator[Step | None]:
    for name in (ENGINE, WEB):
        _running(_services(), name)
    with speaking(actor, FIRST) as globex:
        yield Step("Requests go out one after the other from here on, until the end.")
        with _asking(globex) as requests:
            _await(lambda: bool(requests), BACK_SECONDS, "The first request was not answered")
            engine = yield from _killed(ENGINE, requests)
            web = yield from _killed(WEB, requests)
        requests_meanwhile = [*engine, *web]
    yield Step("Both are back, requests have ended and the key is revoked. Now everything must have been counted.")
    differences = yield from _reconciled(database_now())
    is_shown = are_answered(engine, web) and differences is not None and differences.tokens == 0
    compared = (
        "nothing was compared in time"
        if differences is None
        else f"{differences.tokens:,} tokens apart in reconciliation"
    )
    yield Step(
        "Nothing is left to undo: the supervisor has started both again.",
        facts=[
            ("While the engine was away", _words(engine), "requests that ended between the kill and its return"),
            ("While the web was away", _words(web), "requests that ended between the kill and its return"),
            ("Reconciliation", compared, "engines, ledger, minutes and pieces, compared after both were back"),
        ],
        facts_title="What was answered meanwhile, and whether all was counted",
        verdict=f"Fault: {_counted(requests_meanwhile)} meanwhile; {compared}",
        tone="ok" if is_shown else "warn",
    )


def are_answered(engine: Sequence[Asked], web: Sequence[Asked]) -> bool:
    """Return whether all requests were answered, but for one that the engine's end may have cut short."""
    cut_short = engine[0].is_cut_short if engine else False
    return all(request.agent for request in [*engine[cut_short:], *web])


def _killed(name: str, requests: Sequence[Asked]) -> Generator[Step | None, None, list[Asked]]:
    """Kill the service and wait for its restart. Return the requests that were running or sent meanwhile."""
    service, before, began = _running(_services(), name), len(requests), time.monotonic()
    _kill(service)
    yield Step(f"{name}, process {service.pid}, got SIGKILL.")
    end = began + BACK_SECONDS
    while (restarted := _back(name, service.pid)) is None:
        if time.monotonic() > end:
            raise NotPossible(f"{name} did not come back within {BACK_SECONDS:.0f} s.")
        yield None
        time.sleep(LOOK_SECONDS)
    meanwhile = list(requests[before:])
    took = time.monotonic() - began
    yield Step(f"{name} is back after {took:.1f} s as process {restarted.pid}. Meanwhile: {_words(meanwhile)}.")
    return meanwhile


def _kill(service: Service) -> None:
    """Send SIGKILL to the service. Raise NotPossible if it is gone or belongs to another user."""
    try:
        os.kill(service.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError) as error:
        raise NotPossible(f"{service.name} could not be killed: {error.strerror}.") from None


def _back(name: str, old_pid: int) -> Service | None:
    service = next((service for service in _services() if service.name == name), None)
    return service if service is not None and service.pid != old_pid and service.state == "ready" else None


def _running(services: Sequence[Service], name: str) -> Service:
    service = next((service for service in services if service.name == name), None)
    if service is None or service.state != "ready":
        raise NotPossible(f"There is no {name} of an embedded stack that is ready here.")
    return service


def _services() -> list[Service]:
    """Read the services from `luminet stack status`: the control plane has no other view of the stack it may run in."""
    command = [sys.executable, "-m", "controlplane.cli", "stack", "status", "--json"]
    try:
        completed = subprocess.run(command, capture_output=True, timeout=STATUS_SECONDS, check=True)
        return services_read(json.loads(completed.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        raise NotPossible("No embedded stack tells here what it runs.") from None


def services_read(rows: Any) -> list[Service]:
    return [Service(str(row["name"]), int(row["pid"]), str(row["state"])) for row in rows if row["pid"]]


@contextmanager
def _asking(voice: Voice) -> Iterator[Sequence[Asked]]:
    """Send short requests from a thread, one after the other, and collect the outcome of each."""
    requests: list[Asked] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(PAUSE_SECONDS):
            try:
                answer = voice.ask([{"role": "user", "content": f"Request {len(requests)}: are you there?"}])
                requests.append(Asked(answer.header("agent")))
            except NotAnswered as error:
                requests.append(Asked("", str(error), is_cut_short=isinstance(error, CutShort)))

    thread = threading.Thread(target=ask, daemon=True, name="five-minutes-asking")
    thread.start()
    try:
        yield requests
    finally:
        is_over.set()
        thread.join(timeout=STATUS_SECONDS)


def _await(is_so: Callable[[], bool], seconds: float, words: str) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise NotPossible(f"{words} within {seconds:.0f} s.")
        time.sleep(PAUSE_SECONDS)


def _words(requests: Sequence[Asked]) -> str:
    by = ", ".join(f"{many} by {agent}" for agent, many in sorted(Counter(_agents(requests)).items()))
    why = next((request.why for request in requests if not request.agent and not request.is_cut_short), "")
    summary = f"{_counted(requests)}{f' ({by})' if by else ''}"
    return f"{summary}{f'; of the others the first: {why}' if why else ''}".rstrip(".")


def _counted(requests: Sequence[Asked]) -> str:
    cut_short = sum(request.is_cut_short for request in requests)
    summary = f"{len(_agents(requests))} of {len(requests)} requests answered"
    return f"{summary}, {cut_short} cut short by the kill and told so" if cut_short else summary


def _agents(requests: Sequence[Asked]) -> list[str]:
    return [request.agent for request in requests if request.agent]


def _reconciled(since: datetime) -> Generator[Step | None, None, Differences | None]:
    """Wait for reconciliations after `since`. Return the first without a difference, else the last."""
    began = time.monotonic()
    last: Differences | None = None
    while time.monotonic() - began < RECONCILED_SECONDS:
        newest = _compared()
        if newest is not None and newest.at > since and (last is None or newest.at > last.at):
            last = newest
            yield Step(f"Engines, ledger, minutes and pieces were compared: {newest.tokens:,} tokens apart.")
            if not newest.tokens:
                return last
        yield None
        time.sleep(LOOK_SECONDS)
    return last


def _compared() -> Differences | None:
    try:
        newest = reconciliation_newest()
    except DatabaseError:
        connection.close()
        return None
    if newest is None:
        return None
    return Differences(newest.at, sum(total["tokens"] for total in newest.totals.values()))
