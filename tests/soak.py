"""An engine under everything at once: `python -m tests.soak --minutes 5`.

Many clients ask, read, leave early, leave while they wait, or ask what nobody can serve. Meanwhile policies change,
namespaces are purged, suspended, removed and come back, pins come and go. Among the requests are some whose answers are
known: they must come out as they always do. At the end nothing may be left over.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import psutil

from engine_agent.backends.paged.backend import IDLE_SECONDS, PagedBackend
from engine_agent.cache.books import DEVICE
from engine_agent.cache.sequences import Sequence
from engine_agent.contracts.protocol import change_between
from engine_agent.engine.asked import Generate
from engine_agent.engine.errors import EngineFailed, RejectedSnapshot, RequestError
from engine_agent.engine.params import BeamParams, SamplingParams
from engine_agent.engine.request import Branch, Job, Request
from engine_agent.engine.sampler import Sampler
from engine_agent.engine.settings import EngineSettings
from tests.engines.driving import GREEDY, make_prompt
from tests.engines.families import make_model
from tests.engines.snapshots import FORMATS, make_snapshot

NAMESPACES = ("one", "two", "three", "four")
STEADY = "steady"  # its policy stays, so its answers are known
CLIENTS = 24
SHARED = [make_prompt(tokens, seed=tokens) for tokens in (20, 33, 64, 80, 150)]
KNOWN = 6
REMEMBERED = 2_000  # blocks that events tell of
POOL_BYTES = 384 << 10
OF_A_REQUEST = (Generate, Job, Request, Branch, Sampler, Sequence)  # gone when it is over
TWO_TICKS = 2 * IDLE_SECONDS
FEW = 16  # that somebody's last stack frame may still know
WARM_SHARE = 0.4  # of the work, until memory is taken to be what it will stay

Progress = Callable[[float], bool]  # how much is done, of 1, is asked of a number of requests; whether to go on


@dataclass(slots=True)
class Report:
    outcomes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    preemptions: int = 0
    warm_mib: float = 0.0
    end_mib: float = 0.0

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    @property
    def grown_mib(self) -> float:
        return self.end_mib - self.warm_mib


class Soak:
    def __init__(self, backend: PagedBackend, *, seed: int, share_done: Callable[[int], float]) -> None:
        self.report = Report()
        self._backend = backend
        self._chance = random.Random(seed)
        self._share_done = share_done
        self._known: dict[int, list[int | None]] = {}
        self._world = _World(self._chance)
        self._numbers = iter(range(sys.maxsize))

    async def run(self) -> Report:
        await self._backend._ask(self._bound_logs)
        await self._backend.apply(self._world.snapshot())
        for number in range(KNOWN):
            self._known[number] = await self._read(self._known_request(number))
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(self._client()) for _ in range(CLIENTS)]
            changing = tasks.create_task(self._change())
            await asyncio.wait(clients)
            changing.cancel()
        await self._settle()
        return self.report

    def _bound_logs(self) -> None:
        """What is remembered of the past is bounded, at some MiB; here at little, so that it is full at once."""
        books = self._backend.engine.manager.cache.books
        books.limits = replace(books.limits, ghost_blocks=1)
        books.events._most_digests = REMEMBERED

    # Clients

    async def _client(self) -> None:
        while (done := self._share_done(self.report.requests)) < 1:
            if done > WARM_SHARE and not self.report.warm_mib:
                self.report.warm_mib = resident_mib()
            outcome = await self._one()
            self.report.outcomes[outcome] += 1

    async def _one(self) -> str:
        behaviour = self._chance.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))[0]
        try:
            return await getattr(self, f"_{behaviour}")() or behaviour
        except EngineFailed as problem:
            self.report.problems.append(f"{behaviour}: {problem}")
            return "failed"
        except RequestError as problem:
            return type(problem).__name__

    async def _know(self) -> None:
        number = self._chance.randrange(KNOWN)
        found = await self._read(self._known_request(number))
        if found != self._known[number]:
            self.report.problems.append(f"answer {number} was {self._known[number]}, now it is {found}")

    async def _read_all(self) -> None:
        await self._read(self._request())

    async def _leave_early(self) -> None:
        generation = await self._backend.generate(self._request(max_tokens=40))
        left = self._chance.randrange(6)
        async for _ in generation:
            if not left:
                break
            left -= 1
        generation.cancel()

    async def _leave_unread(self) -> None:
        generation = await self._backend.generate(self._request(max_tokens=40))
        await asyncio.sleep(self._chance.random() * 0.02)
        generation.cancel()
        generation.cancel()

    async def _leave_waiting(self) -> None:
        asking = asyncio.create_task(self._backend.generate(self._request(max_tokens=40)))
        await asyncio.wait({asking}, timeout=self._chance.random() * 0.01)
        if asking.cancel():
            await asyncio.wait({asking})
        if not asking.cancelled() and not asking.exception():
            asking.result().cancel()

    async def _be_late(self) -> None:
        await self._read(self._request(max_tokens=60, deadline_seconds=self._chance.random() * 0.05 + 1e-3))

    async def _ask_absurdly(self) -> str:
        """Refused, each for its own reason, and nothing is left of it."""
        absurd: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"prompts": ([1] * 5_000,)}, {}),
            ({"prompts": ([],)}, {}),
            ({"prompts": ([1, 2], [1] * 5_000)}, {}),
            ({"prompts": ([1, 96],)}, {}),
            ({"kv_dtype": "int2"}, {}),
            ({"namespace": "nobody"}, {}),
            ({}, {"max_tokens": 2**30}),
            ({}, {"logit_bias": {96: 1.0}}),
            ({}, {"n": 100}),
        ]
        asked, settings = self._chance.choice(absurd)
        try:
            await self._read(self._request(settings=settings, **asked))
        except EngineFailed:
            raise
        except RequestError:
            return "absurd"
        self.report.problems.append(f"answered: {asked} {settings}"[:200])
        return "absurd, and answered"

    async def _read(self, request: Generate) -> list[int | None]:
        tokens, finishes = [], 0
        generation = await self._backend.generate(request)
        async for delta in generation:
            tokens.append(delta.token)
            finishes += delta.finish is not None
        wanted = request.sampling.n * len(request.prompts)
        if finishes != wanted:
            self.report.problems.append(f"{finishes} of {wanted} choices ended: {request.sampling}")
        return tokens

    # What is asked

    def _request(
        self,
        *,
        prompts: tuple[list[int], ...] | None = None,
        max_tokens: int = 16,
        settings: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> Generate:
        chance = self._chance
        kind = chance.choice(SETTINGS)
        own: dict[str, Any] = {"max_tokens": chance.randint(1, max_tokens), **kind, **(settings or {})}
        fields: dict[str, Any] = {
            "namespace": chance.choice((*NAMESPACES, STEADY)),
            "kv_dtype": chance.choice((None, None, *FORMATS)),
            "cache_salt": chance.choice((b"", b"", b"salt")),
            "ttl_seconds": chance.choice((None, None, 0.05)),
            "priority": chance.choice((0, 0, -1, 5)),
            "deadline_seconds": 60.0,
        }
        return Generate(
            request_id=f"request-{next(self._numbers)}",
            prompts=tuple(self._prompt() for _ in range(chance.choice((1, 1, 1, 3)))) if prompts is None else prompts,
            sampling=SamplingParams(**own),
            **fields | asked,
        )

    def _prompt(self) -> list[int]:
        chance = self._chance
        return [*chance.choice(SHARED), *(chance.randrange(96) for _ in range(chance.randrange(1, 40)))]

    def _known_request(self, number: int) -> Generate:
        settings: dict[str, Any] = dict(GREEDY) if number % 2 else {"seed": number, "top_p": 0.9}
        prompt = SHARED[number % len(SHARED)] + [number + 1]
        return Generate(
            request_id=f"known-{next(self._numbers)}",
            namespace=STEADY,
            prompts=(prompt,),
            sampling=SamplingParams(max_tokens=24, **settings),
            deadline_seconds=120.0,
        )

    # What changes meanwhile

    async def _change(self) -> None:
        before = self._world.snapshot()
        while True:
            await asyncio.sleep(self._chance.random() * 0.02)
            what = self._world.change()
            after = self._world.snapshot()
            is_change = self._chance.random() < 0.5
            try:
                await self._backend.apply(change_between(before, after) if is_change else after)
                before = after
            except RejectedSnapshot:
                self._world.go_back()
                what = "rejected"
            self.report.changes[what] += 1
            for pin in self._world.pins:
                await self._backend.set_pin_content(pin, SHARED[3])
            if self._chance.random() < 0.1:
                self.report.problems += await self._backend.check_integrity()
                await self._backend.take_receipts()
                await self._backend.stats()

    async def _settle(self) -> None:
        """All have left: whose is what now?"""
        self._world.calm_down()
        await self._backend.apply(self._world.snapshot())
        for _ in range(1_000):
            stats = await self._backend.stats()
            if not stats["running"] and not stats["waiting"]:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(TWO_TICKS)
        report = self.report
        report.preemptions = stats["preemptions"]
        report.problems += [f"{stats[name]} {name} at the end" for name in ("running", "waiting") if stats[name]]
        report.problems += await self._backend.check_integrity()
        report.problems += await self._backend._ask(self._held)
        report.end_mib = resident_mib()
        gc.collect()
        left = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in OF_A_REQUEST)
        report.problems += [f"{count} {name} are left" for name, count in left.items() if count > FEW]

    def _held(self) -> list[str]:
        books = self._backend.engine.manager.cache.books
        held = {
            name: owner.accounts[DEVICE].resident_bytes - owner.accounts[DEVICE].idle_bytes
            for name, owner in books.namespaces.items()
        }
        return [f"{count:,} bytes of {name} are held by nobody" for name, count in held.items() if count]


class _World:
    """What the snapshot says, and how it changes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._policies: dict[str, dict[str, Any]] = {name: {} for name in (*NAMESPACES, STEADY)}
        self._epochs = dict.fromkeys(self._policies, 1)
        self._suspended: set[str] = set()
        self.pins: dict[str, str] = {}
        self._before = self._state()

    def snapshot(self) -> Any:
        pins = {pin: name for pin, name in self.pins.items() if name in self._policies}
        return make_snapshot(self._policies, epochs=self._epochs, pins=pins, suspended=self._suspended)

    def change(self) -> str:
        self._before = self._state()
        self._bring_back()
        name = self._chance.choice(NAMESPACES)
        what = self._chance.choice(("policy", "policy", "policy", "purge", "suspend", "remove", "pin", "impossible"))
        if what == "policy":
            self._policies[name] = self._policy()
        elif what == "purge":
            self._epochs[name] += 1
        elif what == "suspend":
            self._suspended.add(name)
        elif what == "remove":
            self._policies.pop(name, None)
            self.pins = {pin: owner for pin, owner in self.pins.items() if owner != name}
        elif what == "pin":
            self._pin(name)
        else:
            self._policies[name] = {"reserved_share": 0.9, "limit_share": 1.0, "pin_share": 0.9}
        return what

    def go_back(self) -> None:
        self._policies, self._epochs, self._suspended, self.pins = self._before

    def calm_down(self) -> None:
        """Whatever was being changed: all are here, none has a pin."""
        self._bring_back()
        self._policies, self.pins = {name: {} for name in self._policies}, {}

    def _bring_back(self) -> None:
        self._suspended.clear()
        for name in NAMESPACES:
            if name not in self._policies:
                self._policies[name] = {}
                self._epochs[name] += 1

    def _pin(self, name: str) -> None:
        pin = f"pin-{name}"
        if pin in self.pins or name not in self._policies:
            self.pins.pop(pin, None)
        else:
            self.pins[pin] = name
            self._policies[name] = {**self._policy(), "pin_share": 0.1}

    def _policy(self) -> dict[str, Any]:
        chance = self._chance
        return {
            "kv_dtype": chance.choice(("fp32", *FORMATS)),
            "prefix_caching": chance.random() < 0.8,
            "ttl_seconds": chance.choice((0.02, 1, 3600)),
            "ttl_mode": chance.choice(("sliding", "absolute")),
            "reserved_share": chance.choice((0, 0, 0.1)),
            "limit_share": chance.choice((1, 1, 0.5)),
            "weight": chance.choice((1, 0.1, 10)),
            "offload": chance.choice(("none", "host")),
        }

    def _state(self) -> tuple[dict[str, dict[str, Any]], dict[str, int], set[str], dict[str, str]]:
        return dict(self._policies), dict(self._epochs), set(self._suspended), dict(self.pins)


BEHAVIOURS = {
    "know": 3,
    "read_all": 6,
    "leave_early": 3,
    "leave_unread": 2,
    "leave_waiting": 2,
    "be_late": 1,
    "ask_absurdly": 1,
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"seed": 1, "top_k": 20},
    {"top_p": 0.9, "logprobs": 2},
    {"n": 3, "seed": 2},
    {"n": 2, "beam": BeamParams()},
    {"stop": ("a", "zz"), "repetition_penalty": 1.2},
    {"stop_token_ids": (5, 9), "min_tokens": 1},
)


def resident_mib() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


async def soak(
    *, seed: int = 1, requests: int = 0, seconds: float = 0.0, name: str = "llama", host_bytes: int = 0
) -> Report:
    """So many requests, or so many seconds of them."""
    settings = EngineSettings(
        pool_bytes=POOL_BYTES, host_bytes=host_bytes, dtype="float32", device="cpu", chunk_tokens=64
    )
    with tempfile.TemporaryDirectory() as folder:
        backend = await PagedBackend.open(make_model(Path(folder) / name, name), name="model", settings=settings)
        began = time.monotonic()

        def share_done(asked: int) -> float:
            return asked / requests if requests else (time.monotonic() - began) / seconds

        try:
            return await Soak(backend, seed=seed, share_done=share_done).run()
        finally:
            await backend.close()


async def in_own_process(*, seed: int, requests: int, host_mib: int) -> Report:
    """The same where nothing else runs, so that what memory grows by is the engine's doing and nobody else's."""
    told = ("--seed", str(seed), "--requests", str(requests), "--host-mib", str(host_mib), "--json")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.soak", *told, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    told_of = json.loads(said)
    return Report(**told_of | {name: Counter(told_of[name]) for name in ("outcomes", "changes")})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--requests", type=int, default=0, help="so many requests, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="llama", help="one of tests/engines/families.py")
    parser.add_argument("--host-mib", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the report for a program to read")
    asked = parser.parse_args()
    report = asyncio.run(
        soak(
            seed=asked.seed,
            requests=asked.requests,
            seconds=asked.minutes * 60,
            name=asked.model,
            host_bytes=asked.host_mib << 20,
        )
    )
    print(_for_programs(report) if asked.json else _for_people(report))
    return 1 if report.problems else 0


def _for_programs(report: Report) -> str:
    return json.dumps({one.name: getattr(report, one.name) for one in fields(report)})


def _for_people(report: Report) -> str:
    return "\n".join(
        [
            f"{report.requests:,} requests: {dict(report.outcomes)}",
            f"{report.changes.total():,} changes: {dict(report.changes)}; {report.preemptions:,} preemptions",
            f"memory: {report.warm_mib:.1f} MiB when warm, {report.end_mib:.1f} MiB at the end",
            *(f"PROBLEM: {problem}" for problem in report.problems[:20]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
