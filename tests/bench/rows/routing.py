"""G3: what it is worth that a gateway knows the caches behind it, beside taking engines in turn."""

import random
from collections.abc import Iterator
from statistics import median

from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.running import send_together
from engine_agent.tools.loadgen.server import Form, Server
from engine_agent.tools.loadgen.workloads import Asked, Vocabulary
from tests.bench import Bench, Target, row
from tests.bench.engine_asking import Asker, Failed, asking
from tests.bench.figures import Figure, Parameters
from tests.bench.routed import routed

AGENTS, TOGETHER = 4, 2
PREFIXES, PREFIX_WORDS, TAIL_WORDS, OUTPUT_TOKENS = 24, 500, 10, 4
POOL = "32MiB"
REQUESTS = 24  # in each sample: each prefix once
ROUNDS = 6
WARM_UP = 2  # after which the caches hold what they will
FORM = Form(is_chat=True, takes_ids=False)
OPTIONS = ("--pool", POOL, "--threads", "1")
IN_TURN = "round robin"
SIZES: Parameters = {
    "agents": AGENTS,
    "requests at once": TOGETHER,
    "prefixes": PREFIXES,
    "words in a prefix, 2.9 tokens each": PREFIX_WORDS,
    "requests in a sample": REQUESTS,
}


@row(
    "G3",
    title="Cache-aware routing: 4 agents, shared prefixes, no overload",
    target="≥ 2 × throughput or ≥ 5 × TTFT p50",
    beside=IN_TURN,
)
def routing(bench: Bench) -> None:
    with (
        routed("cache-aware", agents=AGENTS, options=OPTIONS, form=FORM) as ours,
        routed("round-robin", agents=AGENTS, options=OPTIONS, form=FORM) as theirs,
        asking() as asker,
    ):
        sides = Side(asker, ours), Side(asker, theirs)
        figure = bench.compare(
            "time for a request, all in all",
            unit="ms",
            ours=sides[0].sample,
            theirs=sides[1].sample,
            theirs_name=IN_TURN,
            repetitions=ROUNDS,
            warmup=WARM_UP,
            target=Target("<=", 0.5),
            parameters=SIZES,
        )
    _record(bench, figure, sides)


class Side:
    """One fleet, and what it answered in each round. Both get the same requests in the same order."""

    def __init__(self, asker: Asker, server: Server) -> None:
        self._asker, self._server, self._rounds = asker, server, _rounds()
        self.outcomes: list[list[Outcome]] = []

    def sample(self) -> float:
        """Milliseconds from one answered request to the next."""
        asked = next(self._rounds)
        sent = send_together(self._asker.session, self._server, asked, concurrency=TOGETHER)
        outcomes = self._asker.run(sent)
        if problem := next((one.error for one in outcomes if one.error), None):
            raise Failed(problem)
        self.outcomes.append(outcomes)
        return 1e3 * max(one.sent_seconds + one.seconds for one in outcomes) / len(outcomes)


def _rounds() -> Iterator[list[Asked]]:
    """Every prefix equally often, in an order by chance, each time with an end of its own."""
    vocabulary, number = Vocabulary(), 0
    heads = [vocabulary.draw(PREFIX_WORDS, "head", prefix) for prefix in range(PREFIXES)]
    while True:
        number += 1
        order = [heads[place % PREFIXES] for place in range(REQUESTS)]
        random.Random(number).shuffle(order)
        yield [
            Asked(head + vocabulary.draw(TAIL_WORDS, number, place), OUTPUT_TOKENS) for place, head in enumerate(order)
        ]


def _record(bench: Bench, figure: Figure, sides: tuple[Side, Side]) -> None:
    count = len(figure.ours.samples)
    ours, theirs = ([_ttft(round_) for round_ in side.outcomes[-count:]] for side in sides)
    bench.record("time to first token p50, cache-aware", unit="ms", values=ours)
    bench.record(f"time to first token p50, {IN_TURN}", unit="ms", values=theirs)
    times = [their / our for our, their in zip(ours, theirs, strict=True)]
    bench.record(f"time to first token p50, {IN_TURN} ÷ ours", unit="×", values=times, target=Target(">=", 5.0))
    for name, side in zip(("cache-aware", IN_TURN), sides, strict=True):
        hits = [100 * _hit_ratio(round_) for round_ in side.outcomes[-count:]]
        bench.record(f"prompt tokens from cache, {name}", unit="%", values=hits)
    bench.note(
        "one of the two targets is the row's: half the time for a request, or a fifth of that to its first token"
    )
    bench.note(f"each agent's pool of {POOL} holds 10 of the {PREFIXES} prefixes, all four together hold them all")


def _ttft(outcomes: list[Outcome]) -> float:
    return 1e3 * median(one.ttft_seconds for one in outcomes if one.ttft_seconds is not None)


def _hit_ratio(outcomes: list[Outcome]) -> float:
    return sum(one.cached_tokens or 0 for one in outcomes) / sum(one.prompt_tokens for one in outcomes)
