"""The least that works of what a bench makes: for the harness's own tests."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.bench.figures import Figure, Target
from tests.bench.machine import Commit, Machine
from tests.bench.measuring import Bench
from tests.bench.noise import Noise
from tests.bench.registry import Registry
from tests.bench.results import Circumstances, RowResult, Run
from tests.bench.running import run_rows

QUIET = Noise(0.1, 1.0, 1.0, 0.0, 2.0)
MACHINE = Machine("Abacus 3", 2, 7.8, "Debian 12", "6.1", None, "3.11.9", 0.25)


def make_run(*results: RowResult, revision: str | None = "a1b2c3d4e5f60718") -> Run:
    started = datetime(2026, 7, 30, 12, 0, 5, tzinfo=UTC)
    return Run(started, Commit(revision, True), MACHINE, {"django": "5.2.19"}, None, list(results), True)


def make_figure(*values: float, unit: str = "ms", target: Target | None = None) -> Figure:
    return Bench("X1").record("latency", unit=unit, values=values, target=target)


def make_result(*figures: Figure, key: str = "X1", notes: tuple[str, ...] = ()) -> RowResult:
    return RowResult(key, "A title", "≤ 2 ms", None, figures, notes)


def make_measured(seconds: float = 1.0, repetitions: int | None = None, *, key: str = "X1") -> RowResult:
    """Of some run, on a quiet machine."""
    run = make_run()
    now = Circumstances(run.stem, run.started, run.commit, repetitions, QUIET)
    return replace(make_result(make_figure(1.0, 2.0), key=key), seconds=seconds, circumstances=now)


def make_comparison(target: Target | None = None) -> Figure:
    ours, theirs = iter([2.0, 3.0, 8.0]), iter([4.0, 4.0, 4.0])
    return Bench("X1").compare(
        "hash",
        unit="µs",
        ours=lambda: next(ours),
        theirs=lambda: next(theirs),
        theirs_name="vLLM 0.32",
        repetitions=3,
        warmup=0,
        target=target,
        parameters={"tokens": 4096},
    )


def make_registry() -> Registry:
    """W1 measures, C10 skips after one figure, C2 raises after one, S1 says nothing."""
    registry = Registry()

    @registry.row("W1", title="Web", target="≤ 2 s")
    def web(bench: Bench) -> None:
        bench.record("start", unit="s", values=[3.0], target=Target("<=", 2.0))
        bench.note("torch was imported")

    @registry.row("C10", title="GPU")
    def gpu(bench: Bench) -> None:
        bench.record("copy", unit="TB/s", values=[4.3])
        bench.skip("no GPU here")

    @registry.row("C2", title="Hit")
    def hit(bench: Bench) -> None:
        bench.record("look-up", unit="µs", values=[5.0])
        raise RuntimeError("pool is\nempty")

    @registry.row("S1", title="Silent")
    def silent(bench: Bench) -> None:
        """Neither measures nor says why."""

    return registry


def results_of(registry: Registry) -> dict[str, RowResult]:
    return {result.key: result for result in run_rows(registry.rows())}
