"""G4's memory: a gateway process that pulled ever more to hold, and follows an engine with very many blocks."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engine_agent.contracts.protocol import Snapshot
from tests.bench.figures import Target
from tests.bench.measuring import Bench
from tests.engines.processes import state_folder
from tests.fleet.control_planes import ControlPlane, answering
from tests.gateway.levels import metrics
from tests.gateway.snapshots import CHECK, POLICY, gateway_snapshot, many_tenants, route, tenants
from tests.gateway.stand_in import Running, stand_in
from tests.integration.test_gateway_process import Process, complete, gateway, joined_before
from tests.support.ports import free_port
from tests.support.waiting import wait_until

ORGANISATIONS, EACH = 1_000, 10
BLOCKS = 1_000_000
STARTS = 3
MORE_SNAPSHOTS = 2
MOST = Target("<=", 200, of="max")
READY_SECONDS = 120.0
OPTIONS = ("--canary-seconds", "0", "--drain-seconds", "0")
TOKEN = "lat_none"  # as `joined_before` has it
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
Holding = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]  # entries and policies


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes: resident; its share of what it shares, and the most it ever was, where the system tells."""

    rss: float
    pss: float | None
    most: float | None

    @classmethod
    def of(cls, running: Process) -> "Memory":
        process = psutil.Process(running.process.pid)
        found = process.memory_full_info()
        peak = None
        with suppress(OSError):
            peak = _PEAK.search(Path(f"/proc/{process.pid}/status").read_text())
        pss = getattr(found, "pss", 0)
        return cls(found.rss / 1e6, pss / 1e6 if pss else None, int(peak[1]) * 1_024 / 1e6 if peak else None)


def gateway_memory(bench: Bench) -> None:
    few: Holding = ({}, ())
    many: Holding = many_tenants(ORGANISATIONS, EACH)
    small, large, replaced = list[Memory](), list[Memory](), list[Memory]()
    starts = bench.repetitions(STARTS)
    for number in range(1, starts + 1):
        bench.step("memory", number, starts)
        with stand_in() as engine, _pulling(engine, few) as (running, _):
            small.append(Memory.of(running))
        with stand_in(blocks=BLOCKS, roots=ORGANISATIONS * EACH) as engine, _pulling(engine, many) as (running, plane):
            wait_until(lambda running=running: _known(running) == BLOCKS)  # type: ignore[misc]
            large.append(Memory.of(running))
            for generation in range(2, 2 + MORE_SNAPSHOTS):
                plane.want(generation, _snapshot(engine, many, generation))
                plane.acknowledged(generation)
                assert complete(running.url).status_code == 200
            replaced.append(Memory.of(running))
    sizes = {"keys": ORGANISATIONS * EACH, "namespaces": ORGANISATIONS * EACH, "organisations": ORGANISATIONS}
    _record(bench, "memory with 3 organisations, no blocks known", small)
    _record(bench, "memory with all of it", large, MOST, **sizes, blocks=BLOCKS)
    _record(bench, f"memory after {MORE_SNAPSHOTS} more whole snapshots", replaced, MOST)


def _record(bench: Bench, name: str, found: Sequence[Memory], target: Target | None = None, **sizes: int) -> None:
    kinds = {"PSS, MB": [one.pss for one in found], "most ever, MB": [one.most for one in found]}
    others = {kind: round(max(filter(None, values)), 1) for kind, values in kinds.items() if any(values)}
    bench.record(
        name, unit="MB", values=[one.rss for one in found], target=target, parameters={"kind": "RSS", **others, **sizes}
    )


@contextmanager
def _pulling(engine: Running, holding: Holding) -> Iterator[tuple[Process, ControlPlane]]:
    """A gateway that has joined, and pulls its first snapshot from a control plane, as it does in a fleet."""
    url, away = (f"{scheme}://127.0.0.1:{free_port()}" for scheme in ("http", "redis"))
    check = base64.b64encode(CHECK).decode()
    plane = ControlPlane(url, away, token=TOKEN, agent="gateway-1", kind="gateway", check=check)
    plane.want(1, _snapshot(engine, holding, 1))
    with ExitStack() as opened:
        opened.enter_context(answering(plane))
        home = opened.enter_context(state_folder())
        home.mkdir()
        joined_before(home, None, at=plane.url)
        running = opened.enter_context(gateway("--home", str(home), *OPTIONS))
        plane.acknowledged(1)
        assert complete(running.url).status_code == 200
        yield running, plane


def _snapshot(engine: Running, holding: Holding, number: int) -> Snapshot:
    """Another one for each number."""
    entries, policies = holding
    routed = route("agent-1", engine.url, context_tokens=2_048 + number)
    return gateway_snapshot(dict(entries), tenants(), routed, policies=[*policies, POLICY])


def _known(running: Process) -> int:
    return int(metrics(running.url).get("luminet_gateway_index_blocks agent-1", 0))
