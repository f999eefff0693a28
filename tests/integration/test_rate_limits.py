import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from controlplane.api import rate_limits, rates
from controlplane.api.rate_limits import RateLimiter
from controlplane.api.rates import LocalBuckets, Rate, Verdict, headers
from tests.support.ports import free_port

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep Redis from answering in time; only the tests of silence want to know."""
    monkeypatch.setattr(rate_limits, "ANSWER_SECONDS", 5)


def admitted(limiter: RateLimiter, times: int, *, token: str = "t", now: float | None = None) -> int:
    return sum(limiter.take(token, now=now).retry_after is None for _ in range(times))


def test_a_token_has_its_limit_and_not_one_more(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 7)
    verdicts = [limiter.take("t", now=NOW) for _ in range(8)]
    assert [verdict.remaining for verdict in verdicts] == [6, 5, 4, 3, 2, 1, 0, 0]
    assert [verdict.retry_after for verdict in verdicts] == [None] * 7 + [9]
    assert verdicts[0] == Verdict(limit=7, remaining=6, reset_seconds=9, retry_after=None)
    assert verdicts[-1].reset_seconds == 61  # 60 s, and what 60 s leave over when cut in seven, rounded up


def test_who_waits_as_told_is_admitted(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 6)
    assert admitted(limiter, 10, now=NOW) == 6
    wait = limiter.take("t", now=NOW).retry_after
    assert wait == 10
    assert admitted(limiter, 3, now=NOW + wait - 1) == 0
    assert admitted(limiter, 3, now=NOW + wait) == 1
    assert admitted(limiter, 10, now=NOW + 1000) == 6


def test_tokens_do_not_pay_for_each_other(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 2)
    assert admitted(limiter, 5, token="a", now=NOW) == 2
    assert admitted(limiter, 5, token="b", now=NOW) == 2


def test_processes_share_one_count_and_redis_forgets_it_again(redis_server: str) -> None:
    assert admitted(RateLimiter(redis_server, 4), 3) == 3
    assert admitted(RateLimiter(redis_server, 4), 3) == 1
    with redis.Redis.from_url(redis_server) as client:
        assert 0 < client.pttl(f"{rate_limits.KEY_PREFIX}t") <= 60_000


def test_a_clock_put_back_locks_nobody_out_for_more_than_a_minute(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 2)
    assert admitted(limiter, 5, now=NOW) == 2
    refused = limiter.take("t", now=NOW - 86_400)
    assert refused.retry_after == 30


def test_many_threads_never_get_more_than_the_limit(redis_server: str) -> None:
    limiters = [RateLimiter(redis_server, 50) for _ in range(2)]
    start = threading.Barrier(16)

    def hammer(number: int) -> int:
        start.wait()
        return admitted(limiters[number % 2], 20, now=NOW)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(hammer, range(16))) == 50


def test_a_redis_that_forgot_the_script_is_taught_it_again(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 3)
    with redis.Redis.from_url(redis_server) as client:
        assert admitted(limiter, 1) == 1
        client.script_flush()
        assert admitted(limiter, 5) == 2


def test_a_value_nobody_understands_counts_as_none(redis_server: str) -> None:
    with redis.Redis.from_url(redis_server) as client:
        client.set(f"{rate_limits.KEY_PREFIX}t", "nonsense")
    assert admitted(RateLimiter(redis_server, 3), 5) == 3


def test_without_redis_each_process_counts_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    limiter = RateLimiter(f"redis://:hush@127.0.0.1:{free_port()}/0", 5)
    with caplog.at_level(logging.WARNING, "luminet.api"):
        assert admitted(limiter, 9, now=NOW) == 5
        limiter._away_until = 0.0
        assert limiter.take("t", now=NOW).retry_after == 12
    assert len(caplog.records) == 1  # the second silence falls within the same minute
    assert "hush" not in caplog.text


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accepts, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_a_redis_that_hangs_costs_one_short_wait(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(rate_limits, "AWAY_SECONDS", 60)
    limiter = RateLimiter(silent_server, 5)
    began = time.monotonic()
    assert admitted(limiter, 50) == 5
    assert time.monotonic() - began < 2


def test_redis_is_asked_again_once_it_may_be_back(redis_server: str) -> None:
    limiter = RateLimiter(redis_server, 5)
    limiter._redis_is_away(redis.ConnectionError("gone"))
    assert admitted(limiter, 1) == 1
    with redis.Redis.from_url(redis_server) as client:
        assert client.exists(f"{rate_limits.KEY_PREFIX}t") == 0
        limiter._away_until = 0.0
        assert admitted(limiter, 1) == 1
        assert client.exists(f"{rate_limits.KEY_PREFIX}t") == 1


@pytest.mark.parametrize("limit", [1, 7, 60])
def test_local_buckets_follow_the_same_rule(redis_server: str, limit: int) -> None:
    limiter, local = RateLimiter(redis_server, limit), LocalBuckets(Rate(limit))
    for second in (0, 0, 0, 1, 1, 30, 45, 45, 120, 20):
        now = NOW + second
        assert local.take("t", round(now * 1_000_000)) == limiter.take("t", now=now)


def test_local_buckets_forget_rested_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_LOCAL_TOKENS", 10)
    buckets = LocalBuckets(Rate(60))
    for number in range(100):
        buckets.take(str(number), round((NOW + number * 120) * 1_000_000))
    assert len(buckets._paid) <= 10


def test_headers_speak_the_draft_and_what_most_clients_read() -> None:
    assert headers(Verdict(limit=6000, remaining=5999, reset_seconds=1, retry_after=None)) == {
        "RateLimit-Policy": '"token";q=6000;w=60',
        "RateLimit": '"token";r=5999;t=1',
        "RateLimit-Limit": "6000",
        "RateLimit-Remaining": "5999",
        "RateLimit-Reset": "1",
    }
    assert headers(Verdict(limit=6, remaining=0, reset_seconds=60, retry_after=10))["Retry-After"] == "10"
