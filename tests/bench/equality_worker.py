"""Row Q2's process: the engine and `transformers` answer the same prompts with the same random model, greedily."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.bench.answers import serve
from tests.engines.driving import GREEDY, drive, make_prompt
from tests.engines.families import make_model
from tests.engines.oracle import Oracle

CHUNK_TOKENS = 48  # the longer prompts are computed in pieces, beside answers under way


def _prepare() -> tuple[Mapping[str, Any], Any]:
    torch.set_num_threads(1)
    return {"transformers": transformers.__version__, "torch": torch.__version__}, _answer


def _answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of each prompt, how many tokens of the answer are those of `transformers`, up to the first that is not."""
    with tempfile.TemporaryDirectory(prefix="luminet-bench-") as folder:
        model = make_model(Path(folder) / "model", question["configuration"])
        driven = drive(model, chunk_tokens=CHUNK_TOKENS)
        prompts = [make_prompt(tokens, seed=tokens) for tokens in question["prompts"]]
        heard = [driven.ask(prompt, max_tokens=question["tokens"], **GREEDY) for prompt in prompts]
        driven.run()
        oracle = Oracle(model)
        answers = [(prompt, one.tokens()) for prompt, one in zip(prompts, heard, strict=True)]
        return {"equal": [_equal(answer, oracle.greedy(prompt, answer)) for prompt, answer in answers]}


def _equal(ours: list[int], theirs: list[int]) -> int:
    return next((place for place, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(ours))


if __name__ == "__main__":
    serve(_prepare)
