"""Reuse gaps: what another TTL or limit would have done, against a cache that is counted block by block."""

import gc
import json
import random
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.cache.gaps import HALF_LIFE_SECONDS, HORIZON_SECONDS, ReuseGaps
from engine_agent.contracts.policy_fields import TtlMode

PUBLIC_TRACE = Path(__file__).parents[4] / "shared" / "traces" / "conversation_trace.jsonl"
BLOCK = 16
POINT = 0.01
MODES: tuple[TtlMode, ...] = ("sliding", "absolute")
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Request:
    digests: Sequence[bytes]
    tokens: int
    now: float


def digest(*name: object) -> bytes:
    return sha256(repr(name).encode()).digest()


def chain(*names: object) -> list[bytes]:
    return [digest(names[: depth + 1]) for depth in range(len(names))]


def blocks(name: object, count: int) -> list[bytes]:
    return [digest(name, depth) for depth in range(count)]


def request(digests: Sequence[bytes], now: float, *, rest: int = 1, block_tokens: int = BLOCK) -> Request:
    return Request(digests, len(digests) * block_tokens + rest, now)


@dataclass(frozen=True, slots=True)
class Counted:
    hit_ratio: float
    mean_blocks: float


def brute_force(
    requests: Sequence[Request],
    *,
    ttl: float = inf,
    mode: TtlMode = "sliding",
    max_age: float = inf,
    limit: float = inf,
    block_tokens: int = BLOCK,
) -> Counted:
    """A cache of single blocks, least recently used first, the deepest of a chain before those above it."""
    cache: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # digest → created, last use; first to go first
    hits = tokens = 0
    block_seconds = 0.0
    age = min(max_age, ttl) if mode == "absolute" else max_age
    idle = inf if mode == "absolute" else ttl
    for each in requests:
        now, found = each.now, 0
        for one in each.digests:
            created, used = cache.get(one, (-inf, -inf))
            if now - created >= age or now - used >= idle:
                break
            found += 1
        for depth, one in enumerate(each.digests):
            created, used = cache.get(one, (-inf, -inf))
            if created > -inf:
                block_seconds += min(now, created + age, used + idle) - used
            cache[one] = (created if depth < found else now, now)
        for one in reversed(each.digests):
            cache.move_to_end(one)
        while len(cache) > limit:
            cache.popitem(last=False)
        hits += found * block_tokens
        tokens += each.tokens
    end = requests[-1].now
    block_seconds += sum(min(end, created + age, used + idle) - used for created, used in cache.values())
    return Counted(hits / tokens, block_seconds / max(end - requests[0].now, 1e-9))


def observed(requests: Iterable[Request], gaps: ReuseGaps | None = None) -> ReuseGaps:
    gaps = gaps or ReuseGaps(block_tokens=BLOCK)
    for one in requests:
        gaps.observe(one.digests, one.tokens, one.now)
    return gaps


def every_block(max_samples: int = 2048) -> ReuseGaps:
    """A record that looks at every depth, so that nothing is estimated."""
    return ReuseGaps(block_tokens=BLOCK, max_samples=max_samples, depths=range(16))


# What is exact


@st.composite
def small_traffic(draw: st.DrawFn) -> list[Request]:
    """Chains out of a small tree, at whole seconds."""
    names = st.lists(st.integers(0, 2), max_size=6)
    steps = draw(st.lists(st.tuples(names, st.sampled_from((0, 1, 2, 5, 20)), st.integers(1, BLOCK)), min_size=1))
    requests, now = [], 0
    for path, wait, rest in steps:
        now += wait
        requests.append(request(chain(*path), now, rest=rest))
    return requests


@settings(max_examples=150, deadline=None)
@given(small_traffic())
def test_with_few_blocks_every_sliding_ttl_and_limit_is_exact(requests: list[Request]) -> None:
    gaps = observed(requests, every_block())
    for ttl in (None, 1, 2, 3, 5, 20, 60):
        for limit in (None, 8, 16, 32):
            counted = brute_force(requests, ttl=ttl or inf, limit=limit or inf)
            assert gaps.hit_ratio(ttl_seconds=ttl, limit_blocks=limit) == pytest.approx(counted.hit_ratio, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from((0, 5, 25, 50, 200))), min_size=1))
def test_absolute_ttls_of_growing_conversations_are_exact(turns: list[tuple[int, int, int]]) -> None:
    requests, now = [], 0
    lengths = dict.fromkeys(range(4), 1)
    for who, more, wait in turns:
        now += wait
        lengths[who] = min(lengths[who] + more, 14)
        requests.append(request([digest("head"), *blocks(who, lengths[who])], now))
    gaps = observed(requests, every_block())
    for ttl in (30, 60, 120, 300):
        counted = brute_force(requests, ttl=ttl, mode="absolute").hit_ratio
        assert gaps.hit_ratio(ttl_seconds=ttl, ttl_mode="absolute") == pytest.approx(counted, abs=1e-12)


def test_a_gap_as_long_as_the_ttl_is_a_miss() -> None:
    gaps = observed([request(blocks("a", 4), 0), request(blocks("a", 4), 60)])
    assert gaps.hit_ratio(ttl_seconds=60) == 0
    assert gaps.hit_ratio(ttl_seconds=90) == pytest.approx(64 / 130)


def test_all_blocks_after_the_first_miss_are_made_anew_under_an_absolute_ttl() -> None:
    """Turns at 0, 50 and 70 s: under 60 s the first turn's blocks are dead at 70, and what came at 50 goes with it."""
    chats = [request(blocks("a", count), at) for count, at in ((4, 0), (8, 50), (8, 70), (8, 100))]
    counted = brute_force(chats, ttl=60, mode="absolute").hit_ratio
    assert counted == 12 * BLOCK / sum(one.tokens for one in chats)
    gaps = observed(chats, every_block())
    assert gaps.hit_ratio(ttl_seconds=60, ttl_mode="absolute") == pytest.approx(counted)


# The public trace

LIMITS = (500, 1500, 3000, 6000, 10_000, 30_000, None)
# Token hit rates in percent of the whole hour by these limits in blocks of 512 tokens, as brute force counts them.
SLIDING = {
    10: (4.30, 4.37, 4.37, 4.37, 4.37, 4.37, 4.37),
    30: (4.30, 4.97, 5.87, 5.87, 5.87, 5.87, 5.87),
    60: (4.30, 4.98, 6.86, 10.18, 10.18, 10.18, 10.18),
    120: (4.30, 4.98, 6.86, 14.69, 19.34, 19.34, 19.34),
    300: (4.30, 4.98, 6.86, 14.69, 21.93, 29.29, 29.29),
    600: (4.30, 4.98, 6.86, 14.69, 21.93, 33.71, 34.96),
    1800: (4.30, 4.98, 6.86, 14.69, 21.93, 33.71, 37.04),
    3600: (4.30, 4.98, 6.86, 14.69, 21.93, 33.71, 37.34),
    None: (4.30, 4.98, 6.86, 14.69, 21.93, 33.71, 37.34),
}
ABSOLUTE = {
    10: (4.20, 4.26, 4.26, 4.26, 4.26, 4.26, 4.26),
    30: (4.26, 4.89, 5.67, 5.67, 5.67, 5.67, 5.67),
    60: (4.28, 4.96, 6.77, 9.29, 9.29, 9.29, 9.29),
    120: (4.29, 4.97, 6.83, 13.93, 16.62, 16.62, 16.62),
    300: (4.30, 4.98, 6.86, 14.60, 21.33, 25.67, 25.67),
    600: (4.30, 4.98, 6.86, 14.68, 21.79, 31.26, 31.45),
    1800: (4.30, 4.98, 6.86, 14.69, 21.90, 33.48, 36.44),
    3600: (4.30, 4.98, 6.86, 14.69, 21.93, 33.71, 37.34),
}
TABLES: tuple[tuple[TtlMode, Mapping[Any, tuple[float, ...]]], ...] = (("sliding", SLIDING), ("absolute", ABSOLUTE))
MEAN_BLOCKS = {10: 747, 60: 4350, 300: 17_928, 600: 31_286, 1800: 68_674}


@pytest.fixture(scope="module")
def hour() -> list[Request]:
    if not PUBLIC_TRACE.exists():
        pytest.skip("the public trace is not in ../shared/traces")
    known: dict[int, bytes] = {}
    requests = []
    with PUBLIC_TRACE.open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            tokens = fields["input_length"]
            ids = fields["hash_ids"][: (tokens - 1) // 512]
            digests = [known.get(one) or known.setdefault(one, digest(one)) for one in ids]
            requests.append(Request(digests, tokens, fields["timestamp"] / 1000))
    return requests


@pytest.fixture(scope="module")
def gaps_of_the_hour(hour: list[Request]) -> ReuseGaps:
    return observed(hour, ReuseGaps(block_tokens=512))


@pytest.mark.parametrize(("mode", "table"), TABLES)
def test_every_ttl_and_limit_is_predicted_within_a_point(
    gaps_of_the_hour: ReuseGaps, mode: TtlMode, table: dict[int | None, tuple[float, ...]]
) -> None:
    for ttl, percents in table.items():
        for limit, percent in zip(LIMITS, percents, strict=True):
            ratio = gaps_of_the_hour.hit_ratio(ttl_seconds=ttl, ttl_mode=mode, limit_blocks=limit)
            assert ratio == pytest.approx(percent / 100, abs=POINT), (ttl, limit)


def test_the_tables_are_what_brute_force_counts(hour: list[Request]) -> None:
    for mode, table in TABLES:
        counted = brute_force(hour, ttl=300, mode=mode, block_tokens=512).hit_ratio
        assert counted == pytest.approx(table[300][-1] / 100, abs=5e-5)


def test_a_maximum_age_is_predicted_within_a_point(gaps_of_the_hour: ReuseGaps) -> None:
    for ttl, age, percent in ((60, 300, 10.18), (300, 600, 28.35), (300, 1800, 29.23), (600, 1800, 34.64)):
        ratio = gaps_of_the_hour.hit_ratio(ttl_seconds=ttl, max_age_seconds=age)
        assert ratio == pytest.approx(percent / 100, abs=POINT), (ttl, age)


def test_resident_blocks_are_predicted_within_four_percent(gaps_of_the_hour: ReuseGaps) -> None:
    for ttl, mean in MEAN_BLOCKS.items():
        assert gaps_of_the_hour.resident_blocks(ttl_seconds=ttl) == pytest.approx(mean, rel=0.04), ttl
    assert gaps_of_the_hour.resident_blocks(ttl_seconds=300, ttl_mode="absolute") == pytest.approx(16_515, rel=0.04)
    assert gaps_of_the_hour.resident_blocks(ttl_seconds=300, limit_blocks=3000) == 3000


def test_blocks_of_sixteen_tokens_say_the_same(hour: list[Request]) -> None:
    """Each block of 512 tokens as 32 blocks."""
    part = hour[:1500]
    small: dict[bytes, list[bytes]] = {one: [] for each in part for one in each.digests}
    for one, into in small.items():
        into.extend(number.to_bytes() + one for number in range(32))
    gaps = ReuseGaps(block_tokens=16)
    for each in part:
        gaps.observe([block for one in each.digests for block in small[one]], each.tokens, each.now)
    for ttl in (30, 60, 300):
        for mode in MODES:
            counted = brute_force(part, ttl=ttl, mode=mode, block_tokens=512).hit_ratio
            assert gaps.hit_ratio(ttl_seconds=ttl, ttl_mode=mode) == pytest.approx(counted, abs=POINT), (ttl, mode)
    for limit in (1500, 6000):
        counted = brute_force(part, limit=limit, block_tokens=512).hit_ratio
        assert gaps.hit_ratio(ttl_seconds=None, limit_blocks=32 * limit) == pytest.approx(counted, abs=POINT), limit


def test_a_quarter_of_the_samples_still_tells_short_from_long(hour: list[Request]) -> None:
    gaps = observed(hour, ReuseGaps(block_tokens=512, max_samples=512))
    for ttl, percents in SLIDING.items():
        assert gaps.hit_ratio(ttl_seconds=ttl) == pytest.approx(percents[-1] / 100, abs=3 * POINT), ttl


# What traffic may look like


def test_a_head_that_every_request_shares_is_counted_as_what_it_is() -> None:
    chance = random.Random(1)
    head = blocks("head", 137)
    requests = [request(head + blocks(turn, chance.randint(1, 60)), turn / 5) for turn in range(2000)]
    gaps = observed(requests)
    assert gaps.hit_ratio(ttl_seconds=60) == pytest.approx(brute_force(requests, ttl=60).hit_ratio, abs=POINT)


def test_conversations_that_branch_behind_common_heads_are_predicted() -> None:
    chance = random.Random(2)
    requests: list[Request] = []
    talks: list[list[bytes]] = []
    for turn in range(1500):
        if not talks or chance.random() < 0.2:
            talks.append(blocks(("head", chance.randrange(5)), 37))
        at = chance.randrange(max(0, len(talks) - 60), len(talks))
        if chance.random() < 0.1:
            talks[at] = talks[at][: chance.randint(37, len(talks[at]))]
        talks[at] = talks[at] + blocks(turn, chance.randint(1, 40))
        requests.append(request(talks[at], turn * 0.7))
    gaps = observed(requests)
    for ttl, limit in ((30, inf), (120, inf), (inf, 2000), (120, 2000)):
        counted = brute_force(requests, ttl=ttl, limit=limit).hit_ratio
        told = gaps.hit_ratio(ttl_seconds=ttl, limit_blocks=None if limit == inf else int(limit))
        assert told == pytest.approx(counted, abs=POINT), (ttl, limit)


def test_a_prompt_that_ends_a_little_otherwise_each_time_is_still_its_conversation() -> None:
    """As where a template closes every prompt: the last blocks of a turn are never seen again, the rest is."""
    chance, requests = random.Random(4), []
    for turn in range(1200):
        who, length = turn % 100, 40 + 25 * (turn // 100)
        requests.append(request(blocks(who, length) + blocks(("end", turn), chance.randint(0, 7)), turn * 0.6))
    counted = brute_force(requests, ttl=120).hit_ratio
    assert observed(requests).hit_ratio(ttl_seconds=120) == pytest.approx(counted, abs=POINT)


# What fades


def test_old_traffic_fades_by_half_a_day() -> None:
    again = [request(blocks("hit", 8), turn) for turn in range(200)]
    gaps = observed(again)
    for turn in range(200):
        gaps.observe(blocks(turn, 8), 129, 3 * HALF_LIFE_SECONDS + turn)
    faded = 200 / 8
    assert gaps.hit_ratio(ttl_seconds=60) == pytest.approx(faded * 199 / 200 * 128 / (faded + 200) / 129)


def test_resident_blocks_speak_of_recent_days() -> None:
    gaps = ReuseGaps(block_tokens=BLOCK)
    for hours in range(24 * 10):
        for turn in range(20 if hours < 24 * 5 else 10):
            gaps.observe(blocks((hours, turn), 10), 161, 3600.0 * hours + turn)
    assert gaps.resident_blocks(ttl_seconds=3600) == pytest.approx(100, rel=0.05)
    assert gaps.resident_blocks(ttl_seconds=3600, ttl_mode="absolute") == pytest.approx(100, rel=0.05)


def test_a_block_that_comes_back_after_the_longest_ttl_is_new() -> None:
    gaps = observed([request(blocks("a", 4), 0), request(blocks("a", 4), HORIZON_SECONDS + DAY)])
    assert gaps.hit_ratio(ttl_seconds=HORIZON_SECONDS) == 0


# What is bounded


class Watched(list[bytes]):
    """Digests that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def bytes_of(make: Callable[[], object]) -> int:
    """What is kept of it, whatever it took to make it."""
    gc.freeze()  # so that only what is made here is collected, not all that this process has imported
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    del made
    return kept


def test_a_fresh_namespace_costs_less_than_a_kilobyte_and_a_conversation_one_more() -> None:
    assert bytes_of(lambda: [ReuseGaps(block_tokens=BLOCK) for _ in range(40)]) < 40 * 1000
    assert bytes_of(lambda: [observed([request(blocks(n, 200), 0)]) for n in range(40)]) < 40 * 2000


@pytest.mark.parametrize("seconds", [0.3, 0.0], ids=["as time goes by", "while time stands still"])
@pytest.mark.parametrize(
    "traffic",
    [
        lambda turn: blocks(turn, 1),
        lambda turn: blocks(turn, 40),
        lambda turn: blocks("same", 30),
        lambda turn: blocks(turn % 300, 1 + turn % 50),
        lambda turn: [*blocks("head", turn % 40), *blocks(turn, 20)],
        lambda turn: [digest("not even a chain")] * 50,
    ],
    ids=["single blocks", "all new", "all the same", "few that change their length", "heads of any length", "nonsense"],
)
def test_memory_is_bounded_whatever_comes(traffic: Callable[[int], list[bytes]], seconds: float) -> None:
    few = 32
    made = bytes_of(
        lambda: observed(
            (request(traffic(turn), turn * seconds) for turn in range(600)),
            ReuseGaps(block_tokens=BLOCK, max_samples=few),
        )
    )
    assert made < 1024 * few + 32_768


def test_a_long_silence_frees_the_memory() -> None:
    def silent() -> ReuseGaps:
        gaps = observed(request(blocks(turn, 20), turn) for turn in range(500))
        gaps.decay(HORIZON_SECONDS + 2 * 500)
        return gaps

    assert bytes_of(silent) < 4000


def test_a_long_prompt_is_looked_at_in_a_few_places_only() -> None:
    gaps = ReuseGaps(block_tokens=BLOCK)
    head, talks = blocks("head", 3000), [blocks(who, 1000) for who in range(10)]
    for turn in range(200):
        digests = Watched(head + talks[turn % 10][: 5 * turn])
        gaps.observe(digests, 16 * len(digests) + 1, turn)
        assert digests.looks <= 45


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=9), st.sampled_from((-5, 0, 1, 30, 50_000, 400_000)))),
    st.sampled_from((1, 2, 5)),
)
def test_whatever_comes_a_ratio_is_a_ratio_and_grows_with_ttl_and_limit(
    traffic: list[tuple[list[int], int]], max_samples: int
) -> None:
    """Far too few samples, and a clock that stands, jumps and goes back."""
    gaps, now = ReuseGaps(block_tokens=BLOCK, max_samples=max_samples), 0
    for path, wait in traffic:
        now += wait
        gaps.observe(chain(*path), BLOCK * len(path) + 1, now)
    if not traffic:
        assert gaps.hit_ratio(ttl_seconds=60) is None
        return
    ratios = [
        *gaps.curve((0.05, 1, 7, 45, 1000, 100_000, HORIZON_SECONDS)),
        gaps.hit_ratio(ttl_seconds=None),
        1.0,
    ]
    by_limit = [gaps.hit_ratio(ttl_seconds=None, limit_blocks=limit) for limit in (0, 1, 10, 100, None)]
    for below, above in (*pairwise(ratios), *pairwise(by_limit)):
        assert below is not None
        assert above is not None
        assert 0 <= below <= above
    for ttl in (1, 45, 100_000):
        absolute, sliding = (gaps.hit_ratio(ttl_seconds=ttl, ttl_mode=mode) for mode in reversed(MODES))
        assert absolute is not None
        assert sliding is not None
        assert 0 <= absolute <= sliding
        assert (gaps.resident_blocks(ttl_seconds=ttl) or 0) >= 0


# What is answered


def test_without_traffic_there_is_nothing_to_say() -> None:
    gaps = ReuseGaps(block_tokens=BLOCK)
    assert gaps.hit_ratio(ttl_seconds=300) is None
    assert gaps.curve((60, 300)) == [None, None]
    assert gaps.resident_blocks(ttl_seconds=300) is None


def test_prompts_without_a_full_block_count_as_tokens() -> None:
    gaps = observed([request(blocks("a", 1), 0, rest=16), request(blocks("a", 1), 1, rest=16), request([], 2, rest=16)])
    assert gaps.hit_ratio(ttl_seconds=300) == pytest.approx(16 / 80)
    assert observed([request([], 0, rest=5)]).hit_ratio(ttl_seconds=300) == 0


def test_there_is_no_mean_while_no_time_has_passed() -> None:
    assert observed([request(blocks("a", 3), 7)]).resident_blocks(ttl_seconds=60) is None


def test_a_curve_is_its_points() -> None:
    gaps = observed(request(blocks(turn % 7, 9), turn * 10) for turn in range(100))
    told = [gaps.hit_ratio(ttl_seconds=ttl, ttl_mode="absolute", limit_blocks=40) for ttl in (30, 80, 300)]
    assert gaps.curve((30, 80, 300), ttl_mode="absolute", limit_blocks=40) == told


def test_a_maximum_age_below_a_sliding_ttl_is_an_absolute_ttl() -> None:
    gaps = observed(request(blocks(turn % 7, 9), turn * 10) for turn in range(100))
    capped = gaps.hit_ratio(ttl_seconds=600, max_age_seconds=120)
    assert capped == gaps.hit_ratio(ttl_seconds=120, ttl_mode="absolute")
    assert capped == gaps.hit_ratio(ttl_seconds=300, ttl_mode="absolute", max_age_seconds=120)


def test_a_maximum_age_far_above_the_ttl_costs_nothing() -> None:
    gaps = observed(request(blocks(turn % 7, 9), turn * 10) for turn in range(1000))
    assert gaps.hit_ratio(ttl_seconds=80, max_age_seconds=DAY) == gaps.hit_ratio(ttl_seconds=80)


def test_the_same_traffic_is_told_the_same() -> None:
    def told() -> list[float | None]:
        chance = random.Random(3)
        traffic = (request(blocks(chance.randrange(400), chance.randint(1, 30)), turn) for turn in range(3000))
        return observed(traffic, ReuseGaps(block_tokens=BLOCK, max_samples=32)).curve((30, 300, 3000))

    assert told() == told()


def test_a_still_answers_as_its_original_did_whatever_comes_afterwards() -> None:
    requests = [request(blocks(number % 7, 3 + number % 5), 10.0 * number) for number in range(300)]
    gaps = observed(requests[:200])
    still = gaps.still()
    policies: list[dict[str, Any]] = [
        {"ttl_seconds": ttl, "ttl_mode": mode, "limit_blocks": limit}
        for ttl in (5.0, 75.0, 900.0)
        for mode in ("sliding", "absolute")
        for limit in (None, 20)
    ]
    before = [(gaps.hit_ratio(**one), gaps.resident_blocks(**one), gaps.prompt_tokens) for one in policies]
    after = observed(requests[200:], gaps)
    found = [(still.hit_ratio(**one), still.resident_blocks(**one), still.prompt_tokens) for one in policies]
    assert [(ratio, tokens) for ratio, _, tokens in found] == [(ratio, tokens) for ratio, _, tokens in before]
    assert [kept for _, kept, _ in found] == pytest.approx([kept for _, kept, _ in before])
    assert after.prompt_tokens > still.prompt_tokens
    assert len({ratio for ratio, _, _ in before}) > 3, "they say different things"
