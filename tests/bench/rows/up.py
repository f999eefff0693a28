"""W2: how long from `make up` to the first answer, and from SIGTERM to nothing left, with everything installed."""

import shutil

from controlplane.stack.config import StackConfig
from tests.bench import Bench, Target, row
from tests.bench.stacks import fresh_home, stack_launched

MAKE_UP = ("make", "--no-print-directory", "up")
FIRST_STARTS = 3
SECOND_STARTS = 6


@row(
    "W2",
    title="make up to the first answer",
    target="first chat completion: ≤ 20 s; everything up: ≤ 15 s; stop: < 10 s",
)
def make_up(bench: Bench) -> None:
    if shutil.which("make") is None:
        bench.skip("no make on this machine")
    bench.note("the first answer is the signed-in overview; it becomes the first chat completion once a gateway exists")
    starts = Starts()
    firsts = bench.repetitions(FIRST_STARTS)
    for _ in range(firsts - 1):
        with fresh_home() as config:
            starts.take(config)
    with fresh_home() as config:
        starts.take(config)
        for _ in range(bench.repetitions(SECOND_STARTS)):
            starts.take(config)
    for name, which in (("first start (new data)", slice(firsts)), ("second start", slice(firsts, None))):
        bench.record(f"{name}: overview answers", unit="s", values=starts.answered[which], target=Target("<=", 15))
        bench.record(f"{name}: every part ready", unit="s", values=starts.ready[which], target=Target("<=", 15))
    bench.record("stop on SIGTERM", unit="s", values=starts.stopped, target=Target("<", 10, of="max"))


class Starts:
    """Seconds of each start taken, in order."""

    def __init__(self) -> None:
        self.answered: list[float] = []
        self.ready: list[float] = []
        self.stopped: list[float] = []

    def take(self, config: StackConfig) -> None:
        with stack_launched(config, MAKE_UP) as stack:
            answered, ready = stack.wait_answered_and_ready()
            self.answered.append(answered)
            self.ready.append(ready)
            self.stopped.append(stack.launched.stop())
