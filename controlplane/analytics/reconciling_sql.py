"""What reconciling.py asks the database: one statement for each two who count.

Each answers a row for every difference, or one that is none: how many pairs there were; agent, boot, namespace, day,
level and start of the pair; requests, prompt and cached tokens as the first says and as the other says; is it one.
"""

from typing import Final

# What one agent says, however absurd, ends no comparison: a sum is told up to what a column holds.
_MOST: Final = 2**62
_COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens")
_SUMS: Final = ", ".join(f"least(sum({name}), {_MOST})::bigint AS {name}" for name in _COUNTS)
_DIFFERENCES: Final = """SELECT *, true FROM pairs WHERE (requests, prompt_tokens, cached_tokens)
        <> (other_requests, other_prompt_tokens, other_cached_tokens)"""
_PAIRS_AND_DIFFERENCES: Final = """SELECT counted.pairs, apart.*
FROM (SELECT count(*) AS pairs FROM pairs) counted LEFT JOIN apart ON true"""


def _coalesced(table: str, prefix: str = "") -> str:
    return ", ".join(f"coalesce({table}.{name}, 0) AS {prefix}{name}" for name in _COUNTS)


# What an engine wrote and did not live to add up is in the ledger alone, and so is what was counted of another journal
# of the same name. There, only what the engine counted and the ledger did not is a difference.
ENGINE_AND_LEDGER: Final = f"""
WITH ledger AS (
    SELECT agent, boot, namespace_id, {_SUMS}, max(upto) AS upto
    FROM analytics_ledgerentry GROUP BY agent, boot, namespace_id
),
pairs AS (
    SELECT agent, boot, namespace_id, NULL::date, NULL::int AS level, NULL::timestamptz,
        one.requests, one.prompt_tokens, one.cached_tokens,
        {_coalesced("other", "other_")}
    FROM analytics_enginetotal one LEFT JOIN ledger other USING (agent, boot, namespace_id)
),
ahead AS (
    SELECT agent, boot, namespace_id
    FROM analytics_enginetotal one JOIN ledger USING (agent, boot, namespace_id)
        LEFT JOIN analytics_journalread journal USING (agent, boot)
    WHERE ledger.upto > one.upto OR journal.is_reborn
),
apart AS (
    {_DIFFERENCES}
    AND NOT (
        requests <= other_requests AND prompt_tokens <= other_prompt_tokens AND cached_tokens <= other_cached_tokens
        AND (agent, boot, namespace_id) IN (SELECT * FROM ahead)
    )
)
{_PAIRS_AND_DIFFERENCES}
"""  # noqa: S608  # names are ours

LEDGER_AND_MINUTES: Final = f"""
WITH ledger AS (
    SELECT agent, namespace_id, day, {_SUMS}
    FROM analytics_ledgerentry WHERE day >= %(first)s GROUP BY agent, namespace_id, day
),
minutes AS (
    SELECT agent, namespace_id, (minute AT TIME ZONE 'UTC')::date AS day, {_SUMS}
    FROM analytics_minute JOIN analytics_series series ON series.id = series_id
    WHERE kind <> %(cache)s GROUP BY 1, 2, 3
),
pairs AS (
    SELECT agent, NULL::text, namespace_id, day, NULL::int AS level, NULL::timestamptz,
        {_coalesced("one")},
        {_coalesced("other", "other_")}
    FROM ledger one FULL JOIN minutes other USING (agent, namespace_id, day)
),
apart AS (
    {_DIFFERENCES}
)
{_PAIRS_AND_DIFFERENCES}
"""  # noqa: S608  # names are ours

# A minute is part of one piece of every level. Of pieces of a minute there are the fleet's alone.
MINUTES_AND_PIECES: Final = f"""
WITH rolled AS (SELECT level, start FROM analytics_rolled WHERE start >= %(since)s),
known AS (SELECT DISTINCT level FROM rolled),
told AS (
    SELECT namespace_id, minute, {_SUMS}
    FROM analytics_minute JOIN analytics_series series ON series.id = series_id
    WHERE kind <> %(cache)s GROUP BY 1, 2
),
every AS (
    SELECT * FROM told
    UNION ALL
    SELECT 0, minute, {_SUMS}
    FROM told GROUP BY minute
),
minutes AS (
    SELECT level, start, namespace_id, {_SUMS}
    FROM (
        SELECT level, date_bin(make_interval(secs => level), minute, 'epoch'::timestamptz) AS start, every.*
        FROM every CROSS JOIN known
        WHERE level > 60 OR namespace_id = 0
    ) AS parted
    JOIN rolled USING (level, start) GROUP BY 1, 2, 3
),
pieces AS (
    SELECT level, start, namespace_id, {_SUMS}
    FROM analytics_piece JOIN rolled USING (level, start) JOIN analytics_series series ON series.id = series_id
    WHERE kind <> %(cache)s GROUP BY 1, 2, 3
),
pairs AS (
    SELECT NULL::text, NULL::text AS boot, namespace_id, NULL::date AS day, level, start,
        {_coalesced("one")},
        {_coalesced("other", "other_")}
    FROM minutes one FULL JOIN pieces other USING (level, start, namespace_id)
),
apart AS (
    {_DIFFERENCES}
)
{_PAIRS_AND_DIFFERENCES}
"""  # noqa: S608  # names are ours
