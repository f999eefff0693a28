"""W2: how long from `make up` to the first answer, and from SIGTERM to nothing left, with everything installed."""

import shutil
from dataclasses import replace

from controlplane.stack.config import StackConfig
from tests.bench import Bench, Target, row
from tests.bench.stacks import fresh_home, stack_launched
from tests.support.ports import free_engine_port, free_port

MAKE_UP = ("make", "--no-print-directory", "up")
FIRST_STARTS = 3
SECOND_STARTS = 6
EVERYTHING_UP, COMPLETION = Target("<=", 15), Target("<=", 20)


@row(
    "W2",
    title="make up to the first answer",
    target="first chat completion: ≤ 20 s; everything up: ≤ 15 s; stop: < 10 s",
)
def make_up(bench: Bench) -> None:
    if shutil.which("make") is None:
        bench.skip("no make on this machine")
    bench.note("the chat completion comes through the gateway, from whichever of the two agents serves first")
    stops = [*_first_starts(bench), *_second_starts(bench)]
    bench.record("stop on SIGTERM", unit="s", values=stops, target=Target("<", 10, of="max"))


def _first_starts(bench: Bench) -> list[float]:
    """The seconds that stopping took."""
    starts = Starts()

    def start() -> float:
        with fresh_home() as config:
            return starts.take(replace(config, engine_port=free_engine_port(), gateway_port=free_port()))

    name = "first start (new data)"
    bench.measure(
        f"{name}: overview answers", unit="s", sample=start, repetitions=FIRST_STARTS, warmup=0, target=EVERYTHING_UP
    )
    bench.record(f"{name}: every part ready", unit="s", values=starts.ready, target=EVERYTHING_UP)
    bench.record(f"{name}: first chat completion", unit="s", values=starts.completions, target=COMPLETION)
    return starts.stopped


def _second_starts(bench: Bench) -> list[float]:
    """The seconds that stopping took."""
    starts = Starts()
    with fresh_home() as fresh:
        config = replace(fresh, engine_port=free_engine_port(), gateway_port=free_port())
        figure = bench.measure(
            "second start: overview answers",
            unit="s",
            sample=lambda: starts.take(config),
            repetitions=SECOND_STARTS,
            warmup=1,  # makes the data
            target=EVERYTHING_UP,
        )
    ready = starts.ready[-len(figure.ours.samples) :]
    bench.record("second start: every part ready", unit="s", values=ready, target=EVERYTHING_UP)
    completions = starts.completions[-len(figure.ours.samples) :]
    bench.record("second start: first chat completion", unit="s", values=completions, target=COMPLETION)
    return starts.stopped


class Starts:
    """Seconds of each start taken, in order."""

    def __init__(self) -> None:
        self.ready: list[float] = []
        self.completions: list[float] = []
        self.stopped: list[float] = []

    def take(self, config: StackConfig) -> float:
        """Start and stop; seconds until the signed-in overview answered."""
        with stack_launched(config, MAKE_UP) as stack:
            answered = stack.wait_answered()
            self.ready.append(answered.ready)
            self.completions += [] if answered.completion is None else [answered.completion]
            self.stopped.append(stack.launched.stop())
            return answered.overview
