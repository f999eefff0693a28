"""Row V1: with real schedulers, both sides do the same work."""

import pytest

from tests.bench.cache_rounds import BLOCK_TOKENS, PROMPT_TOKENS
from tests.bench.vllm_asked import FULL_HIT, NEW_PROMPT, OURS, STEP, STOCK
from tests.bench.vllm_sides import Bookkeeping


@pytest.mark.parametrize("side", [OURS, STOCK])
def test_new_prompts_hit_nothing_and_full_hits_all_but_the_last_block(side: str) -> None:
    worker = Bookkeeping(side)
    assert worker.answer({"measure": NEW_PROMPT, "rounds": 3})["hit_tokens"] == [0, 0, 0]
    whole = PROMPT_TOKENS - BLOCK_TOKENS
    assert worker.answer({"measure": FULL_HIT, "rounds": 3})["hit_tokens"] == [whole] * 3
    assert worker.answer({"measure": STEP, "rounds": 20})["µs"] > 0
