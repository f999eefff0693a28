"""C4, C5 and E1: hit rate, fairness and memory of the block manager under an hour of real traffic, the public trace."""

from collections.abc import Sequence
from dataclasses import replace

from engine_agent.tools.replay.namespaces import FLOODER, flooded, namespaces_of, only, split
from engine_agent.tools.replay.outcome import Tally
from engine_agent.tools.replay.policies import Setup, Shares, Ttl
from engine_agent.tools.replay.running import replay
from engine_agent.tools.replay.trace import Request, read_trace
from tests.bench import Bench, Target, row
from tests.bench.allocation import PAGE_TOKENS, STEP_SECONDS, Sizes, mean_in_flight, minutes_of
from tests.unit.replay.brute_force import BruteForce, optimistic_hit_ratio
from tests.unit.replay.examples import PUBLIC_TRACE

BLOCK_TOKENS = 512
HIT_PERCENT = {Ttl(): 37.4, Ttl("sliding", 300): 29.3, Ttl("absolute", 300): 25.7}
QUIET, EVERY = "namespace-0", 8
POOL_BLOCKS = 3000
FLOODS = (1, 4, 16)
CONTEXT_TOKENS = 131_072
REPLAYS = 3


def percent_of(tally: Tally) -> float:
    return 100 * (tally.hit_ratio or 0)


def public_trace(bench: Bench) -> list[Request]:
    if not PUBLIC_TRACE.exists():
        bench.skip("the public trace is not in ../shared/traces")
    with PUBLIC_TRACE.open(encoding="utf-8") as lines:
        return read_trace(lines, block_tokens=BLOCK_TOKENS)


@row(
    "C4",
    title="Replay of the public trace: token hit rate with no limit · 5 min sliding · 5 min absolute",
    target="37.4 · 29.3 · 25.7 % ± 0.5",
    beside="brute force",
)
def hit_rate(bench: Bench) -> None:
    requests = public_trace(bench)
    for ttl, percent in HIT_PERCENT.items():
        outcomes = [replay(requests, Setup(ttl)) for _ in range(bench.repetitions(REPLAYS))]
        counted = BruteForce(ttl)
        counted.run(requests)
        bench.record(
            f"token hit rate, {ttl.label}",
            unit="%",
            values=[percent_of(outcome.total) for outcome in outcomes],
            target=Target("==", percent, tolerance=0.5),
            parameters={
                "brute force, same rules, %": 100 * counted.hit_ratio(),
                "brute force, rests count as blocks, %": 100 * optimistic_hit_ratio(requests, ttl),
                "peak resident, M tokens": outcomes[0].peak_resident_tokens / 1e6,
                "requests": len(requests),
            },
        )
        apart = [outcome.total.cached_tokens - counted.spaces["default"].cached_tokens for outcome in outcomes]
        bench.record(f"apart from brute force, {ttl.label}", unit="tokens", values=apart, target=Target("==", 0))
        bench.record(f"one replay, {ttl.label}", unit="s", values=[outcome.replay_seconds for outcome in outcomes])


@row(
    "C5",
    title="A quiet tenant's hit rate beside a flooder, as a share of what it gets alone in its fair half of the pool",
    target="≥ 95 % at ×1, ×4 and ×16",
    beside="one cache for both, least recently used",
)
def fairness(bench: Bench) -> None:
    quiet = only(split(public_trace(bench), EVERY), QUIET)
    whole, half = (Setup(Ttl(), blocks * BLOCK_TOKENS) for blocks in (POOL_BLOCKS, POOL_BLOCKS // 2))
    alone = {"whole pool": percent_of(replay(quiet, whole).total), "half": percent_of(replay(quiet, half).total)}
    for where, percent in alone.items():
        bench.record(f"alone, {where}", unit="%", values=[percent], parameters={"requests": len(quiet)})
    sides = {
        "weighted fair": whole,
        "half reserved": replace(whole, shares={QUIET: Shares(reserved=0.5)}),
        "one cache": replace(whole, is_one_cache=True),
    }
    for times in FLOODS:
        requests = flooded(quiet, times, block_tokens=BLOCK_TOKENS)
        for name, setup in sides.items():
            percent = percent_of(replay(requests, setup).tallies[QUIET])
            bench.record(
                f"×{times}, {name}",
                unit="%",
                values=[100 * percent / alone["half"]],
                target=None if setup.is_one_cache else Target(">=", 100 if setup.shares else 95),
                parameters={"hit rate, %": percent, "brute force, %": _counted(requests, setup)},
            )


def _counted(requests: Sequence[Request], setup: Setup) -> float:
    """The quiet tenant's hit rate by brute force, in %."""
    names = ["default"] if setup.is_one_cache else namespaces_of(requests)
    counted = BruteForce(setup.ttl, pool_blocks=POOL_BLOCKS, shares=setup.shares, namespaces=names)
    served = counted.run(replace(one, namespace="default") if setup.is_one_cache else one for one in requests)
    both = [(one, request) for one, request in zip(served, requests, strict=True) if request.namespace != FLOODER]
    return 100 * sum(one.cached_tokens for one, _ in both) / sum(request.input_tokens for _, request in both)


@row(
    "E1",
    title="Memory waste of paged allocation on the public trace's lengths",
    target="< 4 %",
    beside="contiguous memory, reserved at admission (60–80 % in the literature)",
)
def waste(bench: Bench) -> None:
    requests = public_trace(bench)
    longest = max(request.input_tokens + request.output_tokens for request in requests)
    sizes: Sizes = {
        f"reserved for the context, {CONTEXT_TOKENS:,} tokens": lambda request: CONTEXT_TOKENS,
        f"reserved for the trace's longest, {longest:,} tokens": lambda request: longest,
        "reserved up to the next power of two": lambda request: (
            1 << (request.input_tokens + request.output_tokens - 1).bit_length()
        ),
    }
    minutes = minutes_of(requests, sizes, block_tokens=BLOCK_TOKENS)
    bench.record(
        "waste, paged",
        unit="%",
        values=[minute.waste_percent(minute.paged) for minute in minutes],
        target=Target("<", 4),
        parameters={
            "tokens a page": PAGE_TOKENS,
            "requests": len(requests),
            "in flight, mean": mean_in_flight(minutes),
            "ms a token": 1000 * STEP_SECONDS,
            "a value for each": "minute of the trace",
        },
    )
    for name in sizes:
        bench.record(
            f"waste, {name}", unit="%", values=[minute.waste_percent(minute.reserved[name]) for minute in minutes]
        )
