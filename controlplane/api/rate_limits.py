"""Counts each token's requests in Redis, for all web processes together. The rule is in rates.py.

While Redis does not answer, each process counts for itself: the limit then applies once per process.
"""

import logging
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.api.rates import MICROSECONDS, LocalBuckets, Rate, Verdict

log = logging.getLogger("luminet.api")

ANSWER_SECONDS = 0.1
AWAY_SECONDS = 1.0  # after a failure Redis is not used for so long: not every request should wait for it
COMPLAINT_SECONDS = 60.0
CONNECTIONS = 32
KEY_PREFIX = "luminet:rate:"

# A clock that was set back must not lock a token out for long, so a token is at most one window ahead.
_TAKE = """
local interval, window, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if now < 0 then
  local clock = redis.call('TIME')
  now = clock[1] * 1000000 + clock[2]
end
local paid = tonumber(redis.call('GET', KEYS[1]) or '') or now
paid = math.min(math.max(paid, now), now + window)
if paid + interval > now + window then
  return {0, paid - now}
end
paid = paid + interval
redis.call('SET', KEYS[1], string.format('%.0f', paid), 'PX', math.ceil((paid - now) / 1000))
return {1, paid - now}
"""


class RateLimiter:
    """Counts requests; one for each process, safe for all its threads."""

    def __init__(self, redis_url: str, requests_per_minute: int) -> None:
        self._rate = Rate(requests_per_minute)
        self._local = LocalBuckets(self._rate)
        self._take = _client(redis_url).register_script(_TAKE)
        self._away_until = 0.0
        self._complain_at = 0.0

    def take(self, token_id: str, *, now: float | None = None) -> Verdict:
        """Count one request. `now` is for tests; normally Redis's clock counts, which all processes share."""
        if time.monotonic() >= self._away_until:
            try:
                return self._take_shared(token_id, now)
            except redis.RedisError as error:
                self._redis_is_away(error)
        return self._local.take(token_id, round((time.time() if now is None else now) * MICROSECONDS))

    def _take_shared(self, token_id: str, now: float | None) -> Verdict:
        clock = -1 if now is None else round(now * MICROSECONDS)
        args = (self._rate.interval, self._rate.window, clock)
        is_admitted, ahead = self._take(keys=[KEY_PREFIX + token_id], args=args)
        return self._rate.verdict(is_admitted=bool(is_admitted), ahead=ahead)

    def _redis_is_away(self, error: redis.RedisError) -> None:
        instant = time.monotonic()
        self._away_until = instant + AWAY_SECONDS
        if instant >= self._complain_at:
            self._complain_at = instant + COMPLAINT_SECONDS
            log.warning("rate limits are counted per process: Redis does not answer", extra={"error": str(error)[:200]})


def _client(url: str) -> redis.Redis:
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=ANSWER_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),  # the local count is the second try
    )
    return redis.Redis(connection_pool=pool)
