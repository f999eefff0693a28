"""Row E5's process: an engine driven step by step, and how much of a prompt's time to first token is bookkeeping.

Bookkeeping is all that the block manager and its waiting room do for a request: hashing its blocks, looking them up,
taking memory, making them matchable, letting go. Each call into them is timed, the one inside another once.
"""

import base64
import functools
import inspect
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine_agent.backends.paged.opening import open_engine
from engine_agent.cache.manager import BlockManager
from engine_agent.cache.waiting import WaitingRoom
from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build
from engine_agent.engine.asked import Generate
from engine_agent.engine.config import read_config
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.settings import EngineSettings
from tests.bench.answers import serve
from tests.bench.engine_model import random_prompt, write_model

CACHING, PLAIN = "caching", "plain"
WARM_UP_TOKENS = 64


class Stopwatch:
    """Seconds spent inside the methods it watches."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._depth = 0

    def watch(self, *classes: type) -> None:
        """Every method and property without an underscore before its name, from now on."""
        for one in classes:
            for name, found in list(vars(one).items()):
                if name.startswith("_"):
                    continue
                if isinstance(found, property) and found.fget is not None:
                    setattr(one, name, property(self._timed(found.fget)))
                elif inspect.isfunction(found):
                    setattr(one, name, self._timed(found))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def timed(*arguments: Any, **named: Any) -> Any:
            self._depth += 1
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - began
                    self.calls += 1

        return timed


class FirstToken:
    """Listens to one request until its first token."""

    def __init__(self) -> None:
        self.at: float | None = None
        self.cached_tokens = 0
        self.is_over = False

    def admitted(self, prompt: int, admission: Admission) -> None:
        self.cached_tokens = admission.cached_tokens

    def delta(self, delta: Delta) -> None:
        if self.at is None:
            self.at = time.perf_counter()

    def failed(self, error: Exception) -> None:
        raise error

    def finished(self) -> None:
        self.is_over = True


class Bookkeeping:
    """Answers `{"namespace", "tokens"}`: a cold prompt's time to first token, and the bookkeeping within it, in µs."""

    def __init__(self, folder: Path) -> None:
        settings = EngineSettings(dtype="bfloat16", device="cpu", threads=int(os.environ["OMP_NUM_THREADS"]))
        self._watch = Stopwatch()
        self._watch.watch(BlockManager, WaitingRoom)
        self._engine = open_engine(folder, name="bench", settings=settings)
        self._engine.apply(snapshot())
        self._vocabulary = read_config(folder).vocab_size
        self._random, self._number = random.Random(5), 0
        self.answer({"namespace": CACHING, "tokens": WARM_UP_TOKENS})

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        prompt = random_prompt(self._random, question["tokens"], self._vocabulary)
        self._number += 1
        params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        asked = Generate(f"request-{self._number}", question["namespace"], (prompt,), params)
        heard, before, calls = FirstToken(), self._watch.seconds, self._watch.calls
        began = time.perf_counter()
        self._engine.submit(asked, heard)
        while not heard.is_over:
            self._engine.step()
        assert heard.at is not None
        return {
            "ttft_us": (heard.at - began) * 1e6,
            "bookkeeping_us": (self._watch.seconds - before) * 1e6,
            "calls": self._watch.calls - calls,
            "cached_tokens": heard.cached_tokens,
        }


def snapshot() -> Snapshot:
    """Two namespaces: one that caches, and one that never matches and never keeps."""
    entries: dict[str, Any] = {"org/bench": {"org": "bench", "slug": "bench", "state": "active", "limits": {}}}
    documents: dict[str, Any] = {}
    for number, (name, is_caching) in enumerate(((CACHING, True), (PLAIN, False))):
        document = {"kv_dtype": "bf16", "prefix_caching": is_caching}
        documents[policy_hash(document)] = document
        entries[f"ns/{name}"] = {
            "org": "bench",
            "slug": name,
            "epoch": 1,
            "key": base64.b64encode(bytes([number]) * 32).decode(),
            "revision": 1,
            "policy": policy_hash(document),
        }
    return snapshot_build("engine", entries, documents)


def prepared(folder: Path) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], dict[str, Any]]]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return {"torch": str(torch.__version__)}, Bookkeeping(folder).answer


def main(given: Sequence[str]) -> None:
    """With the model of the rows, or another one's folder."""
    with tempfile.TemporaryDirectory() as folder:
        serve(lambda: prepared(Path(given[0]) if given else write_model(Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1:])
