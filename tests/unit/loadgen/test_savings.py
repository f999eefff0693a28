"""What caching saves: arithmetic on known samples, and the whole command against a server that caches."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine_agent.engine.config import read_config
from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.workloads import Vocabulary
from engine_agent.tools.savings.capacity import most_within, room_in
from engine_agent.tools.savings.command import blocks_of, main
from engine_agent.tools.savings.confidence import estimate, percentile, reduction
from engine_agent.tools.savings.engine import cpu_seconds_of, engine_running
from engine_agent.tools.savings.measuring import Measured, check_sides, trial_of
from engine_agent.tools.savings.plan import SIDES, Plan, Prompts, Side
from tests.unit.loadgen.openai_server import Scripted
from tests.unit.loadgen.test_command import served

PLAN = Plan(template_tokens=1000, tail_tokens=20, output_tokens=4, rounds=3)
DEMO = Path(__file__).parents[3] / "engine_agent" / "demo" / "model"


def outcome(ttft: float = 0.1, *, cached: int | None = 0, sent: float = 0.0) -> Outcome:
    return Outcome(sent, ttft_seconds=ttft, seconds=ttft, prompt_tokens=1020, output_tokens=4, cached_tokens=cached)


def test_both_sides_are_asked_prompts_of_one_length_and_only_one_side_shares() -> None:
    prompts = Prompts(PLAN, Vocabulary())
    with_, without = ([prompts.next(side).tokens for _ in range(4)] for side in SIDES)
    assert {len(tokens) for tokens in [*with_, *without]} == {1020}
    assert len({tokens[:1000] for tokens in with_}) == 1
    assert len({tokens[1000:] for tokens in with_}) == 4
    assert len({tokens[:8] for tokens in [*without, with_[0]]}) == 5


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 8, 13, 31, 32])
async def test_the_most_within_a_bound_is_found(limit: int) -> None:
    tried: list[int] = []

    async def holds(together: int) -> bool:
        tried.append(together)
        return together <= limit

    assert await most_within(holds, 32) == limit
    assert len(tried) == len(set(tried)) <= 11
    assert max(tried) <= 32


def test_a_pool_holds_the_template_once_where_requests_share_it() -> None:
    room = room_in(1_000, template_tokens=1_000, own_tokens=100, block_tokens=16)
    # 1,100 tokens are 69 blocks; 62 full ones of the template are held once, and 7 are each request's own.
    assert (room.without_caching, room.with_caching) == (1_000 // 69, (1_000 - 62) // 7)


def test_a_pool_too_small_for_the_template_has_room_for_none() -> None:
    room = room_in(30, template_tokens=1_000, own_tokens=100, block_tokens=16)
    assert (room.without_caching, room.with_caching) == (0, 0)


def test_the_interval_holds_the_figure_and_narrows_with_more_samples() -> None:
    few, many = ([float(100 + number % 10) for number in range(count)] for count in (10, 1000))
    median = percentile(0.5)
    wide, narrow = estimate(median, few), estimate(median, many)
    for one in (wide, narrow):
        assert one.low <= one.value <= one.high
    assert narrow.high - narrow.low < wide.high - wide.low


def test_a_reduction_is_a_share_of_the_other_side() -> None:
    saved = reduction(percentile(0.5), [10.0] * 5, [100.0] * 5)
    assert (saved.value, saved.low, saved.high) == (0.9, 0.9, 0.9)


def test_a_trial_is_judged_by_95_in_100_first_tokens() -> None:
    outcomes = [outcome(0.1) for _ in range(96)] + [outcome(9.0) for _ in range(4)]
    assert trial_of(4, outcomes, 150).is_within
    assert not trial_of(4, outcomes[50:], 150).is_within


def test_the_busiest_trial_within_the_bound_prices_a_request() -> None:
    slow, fast, late = (
        trial_of(together, [outcome(ttft, sent=0.0), outcome(ttft, sent=wait)], 500)
        for together, ttft, wait in ((1, 0.4, 1.6), (2, 0.4, 0.1), (4, 0.9, 0.0))
    )
    assert [trial.is_within for trial in (slow, fast, late)] == [True, True, False]
    assert Measured(trials=[slow, fast, late]).machine_seconds == pytest.approx(0.25)
    assert Measured(trials=[late]).machine_seconds == pytest.approx(0.45)


def sides(with_: int | None, without: int | None) -> dict[Side, Measured]:
    return {
        "with": Measured([outcome(cached=with_) for _ in range(3)]),
        "without": Measured([outcome(cached=without) for _ in range(3)]),
    }


def test_sides_that_do_what_their_names_say_may_be_compared() -> None:
    check_sides(sides(992, 0), PLAN)


@pytest.mark.parametrize(
    ("with_", "without", "complaint"),
    [
        (0, 0, "with caching, 0 of a template of 1,000 tokens"),
        (992, 512, "without caching, 512 tokens"),
        (None, 0, "does not say how many"),
        (992, None, "does not say how many"),
    ],
)
def test_sides_that_do_not_are_not_compared(with_: int | None, without: int | None, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        check_sides(sides(with_, without), PLAN)


def test_a_pool_has_as_many_blocks_as_pages_fit() -> None:
    config = read_config(DEMO)
    token = 2 * config.layers * config.kv_heads * config.head_size
    assert blocks_of(DEMO, "fp8", 100 * 16 * token + 1) == 100
    assert blocks_of(DEMO, "bf16", 100 * 16 * token) == 50
    assert blocks_of(DEMO, None) is None


# The command


class Caching(Scripted):
    """Says that whatever begins like an earlier prompt came from its cache, block by block."""

    def _cached(self, body: dict[str, Any]) -> int:
        blocks = [str(body["prompt"][: 16 * (n + 1)]) for n in range(len(body["prompt"]) // 16)]
        known = sum(block in self.seen for block in blocks)
        self.seen.update(blocks)
        return 16 * known


def test_the_command_measures_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, sizes = tmp_path / "savings.json", ["--template-tokens", "160", "--tail-tokens", "16", "--output-tokens", "2"]
    with served(Caching()) as url:
        options = [*sizes, "--rounds", "4", "--most-together", "4", "--bound", "10000", "--pool-blocks", "100"]
        assert main(["--url", url, *options, "--json", str(file)]) == 0
    told = capsys.readouterr().out
    assert "n = 4 on each side" in told
    assert "requests at once, in memory" in told
    found = json.loads(file.read_text())
    assert [found[side]["cached_tokens"] for side in ("with", "without")] == [[160] * 4, [0] * 4]
    assert [found[side]["together"] for side in ("with", "without")] == [4, 4]
    assert found["room_in_memory"] == {"pool_blocks": 100, "with_caching": 45, "without_caching": 8}


def test_a_server_that_does_not_cache_is_not_praised(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Scripted()) as url:
        assert main(["--url", url, "--template-tokens", "160", "--rounds", "2", "--output-tokens", "1"]) == 1
    assert "0 of a template of 160 tokens came from the cache" in capsys.readouterr().err


def test_an_engine_that_cannot_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"the engine ended: .*config\.json"), engine_running(tmp_path):
        pytest.fail("it started")


def test_what_a_process_has_computed_grows() -> None:
    before = cpu_seconds_of(os.getpid())
    assert before is not None
    while (after := cpu_seconds_of(os.getpid())) is not None and after <= before:
        sum(range(100_000))
    assert cpu_seconds_of(2**30) is None
