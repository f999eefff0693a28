"""SQL that sums columns.ADDED and latency histograms (`times`). It interpolates only our own names, never values.

Sums stay below what a column can store, whatever agents report: no number is counted beyond MOST_SUM.
"""

from collections.abc import Sequence
from typing import Final

from controlplane.analytics.columns import ADDED, COUNT_BITS

MOST_SUM: Final = 2**61
MOST_CODES: Final = 600  # in a minute's row, before repeated codes are merged
_MASK: Final = 2**COUNT_BITS - 1

NAMES: Final = ", ".join(ADDED)


def times_summed(times: str) -> str:
    """Return a histogram with each code once. `times`: a query or expression of one set of bigint."""
    return (
        f"coalesce((SELECT array_agg((code << {COUNT_BITS}) | least(counted, {_MASK})::bigint) "  # noqa: S608
        f"FROM (SELECT one >> {COUNT_BITS} AS code, sum(one & {_MASK}) AS counted "
        f"FROM {times} AS told(one) GROUP BY 1) AS codes), '{{}}')"
    )


def times_of_groups(table: str, group: str) -> str:
    """Return a query of each group's histogram in the column `times`, leaving out empty ones."""
    return (
        f"SELECT {group}, array_agg((code << {COUNT_BITS}) | least(counted, {_MASK})::bigint) AS times "  # noqa: S608
        f"FROM (SELECT {group}, one >> {COUNT_BITS} AS code, sum(one & {_MASK}) AS counted "
        f"FROM {table}, unnest({table}.times) AS timed(one) GROUP BY {group}, code) AS codes GROUP BY {group}"
    )


def added_on_conflict(names: Sequence[str]) -> str:
    """Return assignments that add the new row to the row `old`, in these columns and in its times."""
    all_times = "old.times || excluded.times"
    compacted = times_summed(f"unnest({all_times})")
    times = f"CASE WHEN cardinality({all_times}) <= {MOST_CODES} THEN {all_times} ELSE {compacted} END"
    return f"{sums_on_conflict(names)}, times = {times}"


def sums_on_conflict(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = least(old.{name}, {MOST_SUM}) + excluded.{name}" for name in names)


def replaced_on_conflict(names: Sequence[str] = (*ADDED, "times")) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in names)


def sums(table: str, names: Sequence[str] = ADDED) -> str:
    """Return the sums of a group's rows."""
    return ", ".join(f"least(sum({table}.{name}), {MOST_SUM})::bigint AS {name}" for name in names)
