"""E6 and H3: the engine alone with the model that is shipped, and what prefix caching saves on it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.workloads import Vocabulary
from engine_agent.tools.savings.capacity import room_in
from engine_agent.tools.savings.command import blocks_of
from engine_agent.tools.savings.engine import cpu_seconds_of
from engine_agent.tools.savings.machine import described
from engine_agent.tools.savings.measuring import measure
from engine_agent.tools.savings.plan import SIDES, Plan, Prompts
from engine_agent.tools.savings.result import Result, Saved
from kernels.layout import BLOCK_TOKENS
from tests.bench import Bench, Target, row
from tests.bench.engine_asking import Asker, Side, asking
from tests.bench.engine_serving import POOL_BYTES, our_engine
from tests.bench.figures import Parameters

SAMPLES = 10
DEMO = Path(__file__).resolve().parents[3] / "engine_agent" / "demo" / "model"
DEMO_VOCABULARY = (3, 2047)
STARTS = 5
LONG, SHORT = 6_000, 2_000
ROUNDS = 20
MOST_TOGETHER = 32
GUIDE = {"time to first token, P50": 86.0, "time to first token, P99": 81.0}  # % saved, as the hosted guide says
GUIDE_COST, GUIDE_TOGETHER = 83.0, 3.0


@row(
    "E6",
    title="The engine alone with the demo model: start, memory, hits",
    target="≤ 6 s · ≤ 700 MB · cold ÷ hit ≥ 10 at 6,000 tokens · hit of 2,000 ≤ 50 ms",
)
def demo(bench: Bench) -> None:
    starts = []
    for k in range(bench.repetitions(STARTS)):
        bench.step("start to serving", k + 1, bench.repetitions(STARTS))
        with tempfile.TemporaryDirectory() as folder, our_engine(DEMO, Path(folder)) as served:
            starts.append(served.ready_seconds)
    bench.record("start to serving", unit="s", values=starts, target=Target("<=", 6.0))
    with tempfile.TemporaryDirectory() as folder, our_engine(DEMO, Path(folder)) as served, asking() as asker:
        bench.record("memory, started", unit="MB", values=[served.resident_mb()])
        for tokens in (LONG, SHORT):
            side = Side(asker, served.server, vocabulary=DEMO_VOCABULARY, seed=tokens)
            _demo_hits(bench, side, tokens)
        _fill(bench, side)
        full: Parameters = {"pool, MiB": POOL_BYTES / 2**20}
        memory = [served.resident_mb()]
        bench.record("memory, pool filled", unit="MB", values=memory, target=Target("<=", 700), parameters=full)


def _demo_hits(bench: Bench, side: Side, tokens: int) -> None:
    target = Target("<=", 50.0) if tokens == SHORT else None
    sample = lambda: side.hit_ms(tokens)  # noqa: E731
    figure = bench.measure(f"hit, {tokens:,} tokens", unit="ms", sample=sample, repetitions=SAMPLES, target=target)
    ratios = [1 / one for one in side.hit_of_cold(len(figure.ours.samples))]
    least = Target(">=", 10.0) if tokens == LONG else None
    bench.record(f"cold ÷ hit, {tokens:,} tokens", unit="×", values=ratios, target=least)


def _fill(bench: Bench, side: Side) -> None:
    """Prompts that together are longer than the pool, so that each of its pages was written once."""
    prompts = (blocks_of(DEMO, "fp8", POOL_BYTES) or 0) * BLOCK_TOKENS // LONG + 2
    for number in range(prompts):
        bench.step("memory, pool filled", number + 1, prompts)
        side.cold_ms(LONG)


@row(
    "H3",
    title="What prefix caching saves on a template of 6,000 tokens, CPU, demo model",
    target="measured and shown",
    beside="the same engine with prompts that begin like no other, alternating",
)
def savings(bench: Bench) -> None:
    record_savings(bench, Plan(rounds=bench.repetitions(ROUNDS), most_together=MOST_TOGETHER))
    bench.note("no GPU took part: the row's other half needs one")


def record_savings(bench: Bench, plan: Plan, options: Sequence[str] = ()) -> None:
    """Measure what caching saves on an engine that is started with `options`, and record it."""
    with tempfile.TemporaryDirectory() as folder, our_engine(DEMO, Path(folder), options) as served, asking() as asker:
        result = _savings(bench, asker, served.server, plan, served.process.process.pid)
    for saved in [*result.times, *([result.cpu] if result.cpu else [])]:
        _record_saved(bench, saved, plan)
    for side in SIDES:
        measured = result.found.sides[side]
        bench.record(f"first token, {side} caching", unit="ms", values=measured.ttft_ms)
        bench.record(f"cost of 1,000 requests, {side} caching", unit="machine hours", values=[result.cost(side)])
        bench.record(f"at once within the bound, {side} caching", unit="requests", values=[measured.together])
    bench.record("cost saved", unit="%", values=[100 * result.cost_saved], parameters={"the guide's, %": GUIDE_COST})
    _record_room(bench, result)
    bench.note(f"bound: 95 % of first tokens within {result.found.bound_ms:,.0f} ms, 4 × the median of one cold prompt")
    bench.note(f"at most {plan.most_together} at once were tried; on {result.machine}; pages in {result.kv_dtype}")


def _savings(bench: Bench, asker: Asker, server: Server, plan: Plan, pid: int) -> Result:
    vocabulary, machine = Vocabulary(*DEMO_VOCABULARY), described()
    found = asker.run(
        measure(
            asker.session,
            server,
            plan,
            Prompts(plan, vocabulary),
            cpu_seconds=(lambda: cpu_seconds_of(pid) or 0.0) if cpu_seconds_of(pid) is not None else None,
            on_step=lambda what, done, of: bench.step(what, done + 1, of),
        )
    )
    kv_dtype = found.sides["with"].outcomes[0].kv_dtype
    blocks = blocks_of(DEMO, kv_dtype, POOL_BYTES)
    own = plan.tail_tokens + plan.output_tokens
    room = room_in(blocks or 0, template_tokens=plan.template_tokens, own_tokens=own, block_tokens=BLOCK_TOKENS)
    return Result(server, plan, found, machine, room, kv_dtype)


def _record_saved(bench: Bench, saved: Saved, plan: Plan) -> None:
    between = {"from, %": 100 * saved.share.low, "to, %": 100 * saved.share.high, "n": plan.rounds}
    guide = {"the guide's, %": GUIDE[saved.name]} if saved.name in GUIDE else {}
    bench.record(f"saved, {saved.name}", unit="%", values=[100 * saved.share.value], parameters=between | guide)


def _record_room(bench: Bench, result: Result) -> None:
    assert result.room is not None
    room = result.room
    sizes: Parameters = {
        "pool, blocks": room.pool_blocks,
        "with": room.with_caching,
        "without": room.without_caching,
        "the guide's, ×": GUIDE_TOGETHER,
    }
    times = room.with_caching / room.without_caching
    bench.record("requests that fit in memory, with ÷ without", unit="×", values=[times], parameters=sizes)
