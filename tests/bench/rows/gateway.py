"""G1, G2: what it costs that a gateway stands in front of an engine, which here answers at once."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

import psutil

from controlplane.stack.environments import Unavailable
from tests.bench import Bench, Target, row
from tests.bench.figures import Parameters
from tests.bench.fronts import instant_engine, litellm_proxy, our_gateway
from tests.bench.growing import Chats, Shape
from tests.bench.hammer import Door, hammer, in_turn, run
from tests.bench.litellm_env import LITELLM
from tests.bench.stats import quantile
from tests.gateway.snapshots import MODEL

TOGETHER, SECONDS, ROUNDS = 32, 4.0, 6
ALONE, ALONE_ROUNDS = 100, 8
SMALL = [
    json.dumps({"model": MODEL, "messages": [{"role": "user", "content": f"Where are we, {number}?"}]}).encode()
    for number in range(TOGETHER)
]
SHAPES = (Shape("many short messages", words=66, messages=640), Shape("few long messages", words=820, messages=44))
COLD, STEPS, CHATS = 10, 20, 6


@row(
    "G1",
    title="Gateway, one worker, in front of an engine that answers at once",
    target="≥ 8 × the requests/s at 32 clients; 1 client: added p50 ≤ 2 ms, p99 ≤ 8 ms",
    beside=LITELLM.name,
)
def small_requests(bench: Bench) -> None:
    with ExitStack() as opened:
        bare = opened.enter_context(instant_engine())
        ours = opened.enter_context(our_gateway(bare))
        try:
            theirs = opened.enter_context(litellm_proxy(bare))
        except Unavailable as problem:
            bench.note(f"nothing to measure beside: {problem}")
            theirs = None
        _throughput(bench, ours, theirs)
        rate = Rate(bare)
        bench.measure(
            "requests/s, nothing in between", unit="/s", sample=rate.sample, repetitions=ROUNDS, parameters=_sizes()
        )
        _alone(bench, bare, ours, theirs)


class Rate:
    """Requests a second at one door, and how long each took."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.milliseconds: list[float] = []  # median of each sample
        self.busy: list[float] = []  # milliseconds of a core that its process takes for a request

    def sample(self) -> float:
        began = _core_seconds(self._door.process)
        taken = run(hammer(self._door, SMALL, together=TOGETHER, seconds=SECONDS))
        self.milliseconds.append(1e3 * median(taken))
        self.busy.append(1e3 * (_core_seconds(self._door.process) - began) / len(taken))
        return len(taken) / SECONDS


def _core_seconds(process: int) -> float:
    times = psutil.Process(process).cpu_times() if process else None
    return times.user + times.system if times else 0.0


def _throughput(bench: Bench, ours: Door, theirs: Door | None) -> None:
    our = Rate(ours)
    if theirs is None:
        bench.measure("requests/s", unit="/s", sample=our.sample, repetitions=ROUNDS, parameters=_sizes())
        return
    their = Rate(theirs)
    figure = bench.compare(
        "requests/s",
        unit="/s",
        ours=our.sample,
        theirs=their.sample,
        theirs_name=LITELLM.name,
        repetitions=ROUNDS,
        target=Target(">=", 8.0),
        parameters=_sizes(),
    )
    count = len(figure.ours.samples)
    both = our.busy[-count:], their.busy[-count:]
    bench.record("a core's time for a request", unit="ms", values=both[0])
    bench.record(f"a core's time for a request, {LITELLM.name}", unit="ms", values=both[1])
    times = [theirs / ours for ours, theirs in zip(*both, strict=True)]
    bench.record(f"a core's time for a request, {LITELLM.name} ÷ ours", unit="×", values=times)
    bench.record(f"time for a request, {TOGETHER} clients, p50", unit="ms", values=our.milliseconds[-count:])
    bench.record(
        f"time for a request, {TOGETHER} clients, p50, {LITELLM.name}", unit="ms", values=their.milliseconds[-count:]
    )


def _alone(bench: Bench, bare: Door, ours: Door, theirs: Door | None) -> None:
    doors = [bare, ours, *([theirs] if theirs else [])]
    bodies = [SMALL[number % len(SMALL)] for number in range(ALONE)]
    rounds = _rounds(bench, "added latency, 1 client", ALONE_ROUNDS, lambda: run(in_turn(doors, bodies)))
    added = [_added(taken[0], taken[1]) for taken in rounds]
    _judge(bench, "added latency, 1 client", added, Target("<=", 2.0), Target("<=", 8.0, of="p99"))
    if theirs:
        their = [one for taken in rounds for one in _added(taken[0], taken[2])]
        bench.record(f"added latency, 1 client, {LITELLM.name}", unit="ms", values=their)


def _sizes() -> Parameters:
    return {"clients": TOGETHER, "seconds of a sample": SECONDS, "bytes of a body": len(SMALL[0])}


@row(
    "G2",
    title="Gateway, prompts of 50,000 to 100,000 tokens, cache-aware",
    target="growing chats, ≥ 95 % seen before: added p50 ≤ 5 ms, p99 ≤ 20 ms; cold reported",
)
def long_prompts(bench: Bench) -> None:
    with instant_engine() as bare, our_gateway(bare) as ours:
        for shape in SHAPES:
            chats = Chats(shape, [bare, ours])
            cold = _rounds(bench, f"{shape.name}: cold", COLD, chats.cold)
            grown = _rounds(bench, f"{shape.name}: growing", CHATS, partial(chats.growing, STEPS))
            added = [_pairwise(taken) for taken in grown]
            _judge(bench, f"added latency, {shape.name}", added, Target("<=", 5.0), Target("<=", 20.0, of="p99"))
            bench.record(
                f"added latency, {shape.name}, cold",
                unit="ms",
                values=[one for taken in cold for one in _pairwise(taken)],
            )
            for fact in chats.facts():
                bench.note(fact)


def _rounds(bench: Bench, name: str, count: int, sample: Callable[[], list[list[float]]]) -> list[list[list[float]]]:
    """What each round's requests took, in seconds, by door; the first round warms up."""
    taken, rounds = list[list[list[float]]](), bench.repetitions(count)
    for number in range(rounds + 1):
        bench.step(name, number, rounds)
        taken.append(sample())
    return taken[1:]


def _added(bare: Sequence[float], there: Sequence[float]) -> list[float]:
    """Milliseconds beyond what is usual with nothing in between."""
    usual = median(bare)
    return [1e3 * (one - usual) for one in there]


def _pairwise(taken: Sequence[Sequence[float]]) -> list[float]:
    """Bodies differ in length, so each is compared with itself."""
    bare, there = taken
    return [1e3 * (two - one) for one, two in zip(bare, there, strict=True)]


def _judge(bench: Bench, name: str, rounds: Sequence[Sequence[float]], half: Target, most: Target) -> None:
    """All requests of all rounds in one figure, for the median and for the hundredth that took longest."""
    values = [one for round_ in rounds for one in round_]
    spread: Parameters = {
        "rounds": len(rounds),
        "p50 of rounds, least": round(min(map(median, rounds)), 3),
        "p50 of rounds, most": round(max(map(median, rounds)), 3),
        "p99 of rounds, least": round(min(quantile(sorted(one), 0.99) for one in rounds), 3),
        "p99 of rounds, most": round(max(quantile(sorted(one), 0.99) for one in rounds), 3),
    }
    bench.record(name, unit="ms", values=values, target=half, parameters=spread)
    bench.record(f"{name}, p99", unit="ms", values=values, target=most)
