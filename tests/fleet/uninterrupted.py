"""A fleet whose control plane is stopped, changed and started while a customer goes on asking its gateway."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from controlplane.stack.services import luminet
from tests.fleet.fleets import Fleet
from tests.usage.chats import Customer
from tests.usage.fleets import MODEL
from tests.usage.recount import CACHED, Recount

PARTS = ("web", "worker", "beat")
PAUSE_SECONDS = 0.25


@dataclass(slots=True)
class Asking:
    """A customer who goes on asking, whatever happens to the control plane."""

    url: str
    customer: Customer
    statuses: list[int] = field(default_factory=list)
    recount: Recount = field(default_factory=Recount)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        over = threading.Event()

        def ask() -> None:
            while not over.wait(PAUSE_SECONDS):
                self.ask(f"How late is it, at question {len(self.statuses)}?")

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()
            self.ask("And at last?")

    def ask(self, question: str) -> tuple[int, int]:
        """Its status, and how many tokens were cached."""
        answer = asked(self.url, self.customer, question)
        self.statuses.append(answer.status_code)
        if answer.status_code == 200:
            self.recount.answered(question, self.customer.organisation, answer.headers)
        return answer.status_code, int(answer.headers.get(CACHED, 0))


def asked(url: str, one: Customer, question: str) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 2}
    headers = {"authorization": f"Bearer {one.key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def serves(url: str, one: Customer) -> bool:
    """Whether it is answered, by a gateway that may be starting."""
    try:
        return asked(url, one, "Hello?").status_code == 200
    except httpx.TransportError:
        return False


def luminet_run(fleet: Fleet, *words: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    """With the settings of the control plane's own processes, but for these."""
    environment = {**_kept(), **fleet.environment, **fleet.owner, **changes}
    return subprocess.run(luminet(*words), env=environment, capture_output=True, text=True, check=False, timeout=300)


def _kept() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("LUMINET_", "DJANGO_"))}


def printed(fleet: Fleet, *words: str) -> Any:
    done = luminet_run(fleet, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def control_plane_stop(fleet: Fleet) -> None:
    for name in PARTS:
        fleet.parts[name].stop()


def control_plane_start(fleet: Fleet) -> None:
    for name in PARTS:
        fleet.parts[name].start(is_awaited=False)
    for name in PARTS:
        fleet.parts[name].wait_ready()


def all_in_sync(fleet: Fleet, names: Sequence[str]) -> bool:
    items = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    found = {one["id"]: one for one in items}
    return all(name in found and found[name]["in_sync"] and found[name]["state"] == "ready" for name in names)
