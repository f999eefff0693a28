"""An engine driven by hand: requests in, step after step, and what each request hears. No thread and no clock of its
own, so that a test decides what happens between two steps.
"""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine_agent.backends.paged.opening import open_engine, page_layouts
from engine_agent.cache.books import DEVICE
from engine_agent.contracts.protocol import Snapshot
from engine_agent.engine.asked import Generate
from engine_agent.engine.config import read_config
from engine_agent.engine.engine import Engine
from engine_agent.engine.errors import RequestError
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.request import Job
from engine_agent.engine.settings import EngineSettings
from tests.engines.snapshots import make_snapshot

MOST_STEPS = 100_000
GREEDY: Mapping[str, Any] = {"temperature": 0.0, "ignore_eos": True}


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-6  # an engine's clock never stands still
        return self.now


class Heard:
    """All that was said to one job."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.admissions: dict[int, Admission] = {}
        self.deltas: list[Delta] = []
        self.error: RequestError | None = None
        self.ends = 0

    def admitted(self, prompt: int, admission: Admission) -> None:
        assert prompt not in self.admissions, "admitted twice"
        self.admissions[prompt] = admission

    def delta(self, delta: Delta) -> None:
        assert not self.is_over, "said after the end"
        assert self.admissions, "said before it was admitted"
        self.deltas.append(delta)

    def failed(self, error: RequestError) -> None:
        self.error = error
        self._end()

    def finished(self) -> None:
        self._end()

    @property
    def is_over(self) -> bool:
        return self.ends > 0

    def tokens(self, choice: int = 0) -> list[int]:
        return [delta.token for delta in self.deltas if delta.choice == choice and delta.token is not None]

    def text(self, choice: int = 0) -> str:
        return "".join(delta.text for delta in self.deltas if delta.choice == choice)

    def finish(self, choice: int = 0) -> str | None:
        reasons = [delta.finish for delta in self.deltas if delta.choice == choice and delta.finish]
        assert len(reasons) <= 1, "one choice ended twice"
        return reasons[0] if reasons else None

    @property
    def cached_tokens(self) -> int:
        return self.admissions[0].cached_tokens

    def _end(self) -> None:
        self.ends += 1
        assert self.ends == 1, "one job ended twice"


class Driven:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count()

    def ask(
        self, *prompts: Sequence[int], namespace: str = "one", asked: Mapping[str, Any] = {}, **settings: Any
    ) -> Heard:
        """`settings` are the sampling's, `asked` the request's other fields."""
        heard = Heard()
        name = f"request-{next(self._numbers)}"
        heard.job = self.engine.submit(Generate(name, namespace, prompts, SamplingParams(**settings), **asked), heard)
        return heard

    def run(self, *heard: Heard) -> None:
        """Until these are over, or, if none are named, until nobody has anything to do."""
        for _ in range(MOST_STEPS):
            if not self.engine.has_work or (heard and all(one.is_over for one in heard)):
                return
            if not self.engine.step():
                self.engine.tick()
        raise AssertionError(f"{MOST_STEPS:,} steps, and no end")

    def answer(self, prompt: Sequence[int], **settings: Any) -> list[int]:
        """The only request there is, to its end."""
        heard = self.ask(prompt, **settings)
        self.run()
        assert heard.error is None, heard.error
        return heard.tokens()

    @property
    def used_bytes(self) -> int:
        """Held by requests: what is kept for hits alone is not in it."""
        accounts = [tenant.accounts[DEVICE] for tenant in self.engine.manager.cache.books.namespaces.values()]
        return sum(account.resident_bytes - account.idle_bytes for account in accounts)

    def settle(self) -> None:
        """Nothing runs: every block is accounted for, and held by nobody."""
        assert not self.engine.has_work
        assert not self.engine.running
        assert not self.engine.waiting
        assert self.engine.manager.check_integrity() == []
        assert self.used_bytes == 0


def drive(
    folder: Path,
    *,
    snapshot: Snapshot | None = None,
    pool_pages: int = 400,
    dtype: str = "float32",
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> Driven:
    """With memory for so many pages of the exact format."""
    pool_bytes = pool_pages * page_layouts(read_config(folder), 16, torch.float32)["fp32"].page_bytes
    chosen = EngineSettings(pool_bytes=pool_bytes, dtype=dtype, **{"device": "cpu"} | settings)
    engine = open_engine(folder, name="model", settings=chosen, boot="boot", clock=clock)
    engine.apply(snapshot or make_snapshot())
    return Driven(engine)


def make_prompt(tokens: int, *, seed: int = 1, vocab: int = 96) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(1, vocab) for _ in range(tokens)]
