"""The queries of reconciling.py, one for each pair of counts.

Each returns a row for every difference, or a single row without one: the number of pairs; agent, boot, namespace, day,
level and start of the pair; requests, prompt and cached tokens of the first and of the other count; whether it differs.
"""

from typing import Final

# Sums are capped at what a column holds, so that absurd numbers of one agent do not fail the comparison.
_MOST: Final = 2**62
_COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens")
_SUMS: Final = ", ".join(f"least(sum({name}), {_MOST})::bigint AS {name}" for name in _COUNTS)
_DIFFERENCES: Final = """SELECT *, true FROM pairs WHERE (requests, prompt_tokens, cached_tokens)
        <> (other_requests, other_prompt_tokens, other_cached_tokens)"""
_PAIRS_AND_DIFFERENCES: Final = """SELECT counted.pairs, apart.*
FROM (SELECT count(*) AS pairs FROM pairs) counted LEFT JOIN apart ON true"""


def _coalesced(table: str, prefix: str = "") -> str:
    return ", ".join(f"coalesce({table}.{name}, 0) AS {prefix}{name}" for name in _COUNTS)


# The ledger alone has records that an engine wrote but died before adding up, and those of another journal of the same
# name. In these cases it is a difference only if the engine counted more than the ledger.
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

# A minute is part of one piece of every level. Only the fleet has pieces of one minute.
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
