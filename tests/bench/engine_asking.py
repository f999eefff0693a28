"""Asks the servers of a row, both sides alike: the same client, the same prompts, and never two at a time."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import aiohttp

from engine_agent.tools.loadgen.asking import ask, session
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.running import send_together
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.workloads import Asked

Found = TypeVar("Found")


class Failed(Exception):
    """A request of a row was not answered; there is no figure without it."""


class Asker:
    """Asks from one event loop for as long as a row runs, so that no sample has its start in it."""

    def __init__(self, runner: asyncio.Runner, opened: aiohttp.ClientSession) -> None:
        self._runner, self._opened = runner, opened

    def ask(self, server: Server, asked: Asked) -> Outcome:
        return _answered(self._runner.run(ask(self._opened, server, asked)))

    def ask_together(self, server: Server, workload: Sequence[Asked]) -> list[Outcome]:
        """All of it at once."""
        sent = send_together(self._opened, server, workload, concurrency=len(workload))
        return [_answered(one) for one in self._runner.run(sent)]

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        """What needs the same loop."""
        return self._runner.run(work)

    @property
    def session(self) -> aiohttp.ClientSession:
        return self._opened


@contextmanager
def asking() -> Iterator[Asker]:
    with asyncio.Runner() as runner:
        opened = session()
        try:
            yield Asker(runner, runner.run(opened.__aenter__()))
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _answered(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        raise Failed(f"{outcome.error} {outcome.detail}".strip())
    return outcome


class Side:
    """One server of a comparison. Both sides make their prompts from one seed, so the k-th of both is the same."""

    def __init__(
        self,
        asker: Asker,
        server: Server,
        *,
        vocabulary: tuple[int, int],
        seed: int = 0,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`rest` is waited for after each sample, so that the other side is measured on a quiet machine."""
        self._asker, self._server, self._vocabulary, self._rest = asker, server, vocabulary, rest
        self._random = random.Random(seed)
        self.cold: list[Outcome] = []
        self.hits: list[Outcome] = []

    def of_format(self, kv_dtype: str) -> "Side":
        """The same server asked to keep keys and values so; its prompts begin anew."""
        server = replace(self._server, extra={"kv_cache_dtype": kv_dtype})
        return Side(self._asker, server, vocabulary=self._vocabulary, seed=1, rest=self._rest)

    def prompt(self, tokens: int) -> tuple[int, ...]:
        first, last = self._vocabulary
        return tuple(self._random.choices(range(first, last + 1), k=tokens))

    def cold_ms(self, tokens: int) -> float:
        """Time to first token of a prompt nobody has sent before."""
        self.cold.append(self._asker.ask(self._server, Asked(self.prompt(tokens), 1)))
        self._rest()
        return _ttft_ms(self.cold[-1])

    def hit_ms(self, tokens: int) -> float:
        """Time to first token of a prompt that was sent just before; that one's is kept beside it."""
        asked = Asked(self.prompt(tokens), 1)
        self.cold.append(self._asker.ask(self._server, asked))
        self.hits.append(self._asker.ask(self._server, asked))
        self._rest()
        return _ttft_ms(self.hits[-1])

    def hit_of_cold(self, samples: int) -> list[float]:
        """Hit ÷ cold of the last so many."""
        pairs = zip(self.hits[-samples:], self.cold[-samples:], strict=True)
        return [_ttft_ms(hit) / _ttft_ms(cold) for hit, cold in pairs]

    def decode_rate(self, together: int, *, prompt_tokens: int, output_tokens: int) -> float:
        """Output tokens a second while all of them decode. Their prompts are in the cache by then."""
        prompts = [self.prompt(prompt_tokens) for _ in range(together)]
        for prompt in prompts:
            self._asker.ask(self._server, Asked(prompt, 1))
        outcomes = self._asker.ask_together(self._server, [Asked(one, output_tokens) for one in prompts])
        self._rest()
        return decode_rate(outcomes)


def decode_rate(outcomes: Sequence[Outcome]) -> float:
    """Between the last one's first token and the first one's last; a piece may hold several tokens, or part of one."""
    began = max(one.sent_seconds + (one.ttft_seconds or 0.0) for one in outcomes)
    ended = min(one.sent_seconds + one.seconds for one in outcomes)
    if ended <= began:
        raise Failed("the answers did not overlap, so there is no moment at which all of them decoded")
    return sum(_tokens_between(one, began, ended) for one in outcomes) / (ended - began)


def _tokens_between(outcome: Outcome, began: float, ended: float) -> float:
    moment = outcome.sent_seconds + (outcome.ttft_seconds or 0.0)
    pieces = 0
    for gap in outcome.gaps_seconds:
        moment += gap
        pieces += began < moment <= ended
    return pieces * outcome.output_tokens / (1 + len(outcome.gaps_seconds))


def _ttft_ms(outcome: Outcome) -> float:
    return 1000 * (outcome.ttft_seconds or 0.0)
