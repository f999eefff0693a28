"""SQL that rolls up numbers by key, in the same transaction and under the same marks as all other pieces."""

from typing import Final

from controlplane.analytics.adding import replaced_on_conflict, sums
from controlplane.analytics.columns import KEY_ADDED
from controlplane.analytics.spans_sql import rows_of_spans

_NAMES: Final = ", ".join(KEY_ADDED)
_SAME: Final = (
    "target.namespace_id = series.namespace_id AND target.agent = '' AND target.model = series.model "
    "AND target.key = series.key"
)


def _roll_sql(rows: str) -> tuple[str, str]:
    """Return two statements: the first creates missing series of pieces, the second writes the pieces of all rows."""
    series = f"""
    INSERT INTO analytics_keyseries (namespace_id, organisation_id, agent, model, key)
    SELECT DISTINCT series.namespace_id, series.organisation_id, '', series.model, series.key
    FROM (SELECT DISTINCT series_id FROM ({rows}) AS row) AS told
    JOIN analytics_keyseries AS series ON series.id = told.series_id
    WHERE NOT EXISTS (SELECT FROM analytics_keyseries AS target WHERE {_SAME})
    ON CONFLICT (namespace_id, agent, model, key) DO NOTHING
    """  # noqa: S608  # names are ours
    # Each series' target is looked up once, by indexes.
    pieces = f"""
    WITH rows AS MATERIALIZED ({rows}),
    targets AS MATERIALIZED (
        SELECT series_id, (
            SELECT target.id FROM analytics_keyseries AS series JOIN analytics_keyseries AS target ON {_SAME}
            WHERE series.id = named.series_id
        ) AS target FROM (SELECT DISTINCT series_id FROM rows) AS named
    )
    INSERT INTO analytics_keypiece (level, start, series_id, {_NAMES})
    SELECT %(level)s, span, target, {sums("rows", KEY_ADDED)}
    FROM rows JOIN targets USING (series_id) WHERE target IS NOT NULL
    GROUP BY span, target ORDER BY span, target
    ON CONFLICT (level, series_id, start) DO UPDATE SET {replaced_on_conflict(KEY_ADDED)}
    """  # noqa: S608
    return series, pieces


ROLL_KEY_MINUTES: Final = _roll_sql(rows_of_spans("analytics_keyminute", "minute"))
ROLL_KEY_PIECES: Final = _roll_sql(rows_of_spans("analytics_keypiece", "start", "AND one.level = %(source)s"))
