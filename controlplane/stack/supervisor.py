"""Start services when their needs are ready, keep them running, and stop them in reverse order within seconds."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.stack.child import Child, Service
from controlplane.stack.leftovers import birth_of
from engine_agent.contracts.files import write_private

STOP_SECONDS = 3.5
KILL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Reporter:
    """Outputs of the supervisor: lines for people, states for `luminet stack status`."""

    say: Callable[[str, str], None]
    state: Callable[[Child], None]
    status_file: Path


class Supervisor:
    def __init__(self, services: Sequence[Service], *, logs: Path, reporter: Reporter) -> None:
        self._reporter = reporter
        self.children = {
            service.name: Child(service, logs=logs, say=reporter.say, changed=self._write_status)
            for service in services
        }
        self._starts: list[asyncio.Task[None]] = []
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._told_unwritable = False

    async def start(self) -> None:
        """Return when every awaited service is ready. Raise ChildFailed for the first that fails."""
        async with asyncio.TaskGroup() as group:
            for child in self.children.values():
                starting = self._start(child)
                if child.service.is_awaited:
                    group.create_task(starting)
                else:
                    self._starts.append(asyncio.create_task(starting))

    async def stop(self) -> None:
        """Stop services that no other needs first; kill those that do not end in time."""
        for task in self._starts:
            task.cancel()
        for layer in stop_order([child.service for child in self.children.values()]):
            await self._stop_layer([self.children[name] for name in layer])
        await asyncio.gather(*self._starts, *self._runs.values(), return_exceptions=True)

    def kill(self) -> None:
        for child in self.children.values():
            child.kill()

    async def _start(self, child: Child) -> None:
        for name in child.service.needs:
            await self.children[name].ready.wait()
        self._runs[child.service.name] = asyncio.create_task(child.run(), name=child.service.name)
        if child.service.is_awaited:
            await child.wait_ready()
            self._reporter.state(child)

    async def _stop_layer(self, children: list[Child]) -> None:
        for child in children:
            child.stop()
        runs = [self._runs[child.service.name] for child in children if child.service.name in self._runs]
        if not runs:
            return
        _, unfinished = await asyncio.wait(runs, timeout=STOP_SECONDS)
        if unfinished:
            for child in children:
                child.kill()
            await asyncio.wait(unfinished, timeout=KILL_SECONDS)

    def _write_status(self) -> None:
        listed = [child for child in self.children.values() if child.pid or child.state == "restarting"]
        rows = [
            {
                "name": child.service.name,
                "pid": child.pid,
                "born": birth_of(child.pid),
                "state": child.state,
                "since": child.since.isoformat(timespec="seconds"),
                "port": child.service.port,
            }
            for child in listed
        ]
        try:
            write_private(self._reporter.status_file, json.dumps(rows, indent=2) + "\n")
            self._told_unwritable = False
        except OSError as error:
            # A full disk must prevent neither stopping nor restarting.
            if not self._told_unwritable:
                self._told_unwritable = True
                self._reporter.say("luminet", f"cannot write {self._reporter.status_file}: {error.strerror}")


def stop_order(services: Sequence[Service]) -> list[list[str]]:
    """Return names in layers: only earlier layers need a service, so it can stop after them. The needs of a running job
    do not wait for it: an interrupted installation continues at the next start."""
    remaining = {service.name: service for service in services}
    layers = []
    while remaining:
        needed = {name for service in remaining.values() if not service.is_job for name in service.needs}
        layer = [name for name in remaining if name not in needed]
        if not layer:
            raise ValueError(f"services need each other in a circle: {', '.join(remaining)}")
        layers.append(layer)
        remaining = {name: service for name, service in remaining.items() if name not in layer}
    return layers
