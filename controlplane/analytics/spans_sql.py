"""SQL that finds the rows of the spans to roll up."""

from typing import Final

_SPAN: Final = "date_bin(%(step)s::interval, one.{at}, 'epoch'::timestamptz)"
_WITHIN: Final = f"one.{{at}} >= %(first)s AND one.{{at}} < %(end)s AND {_SPAN} = ANY(%(starts)s::timestamptz[])"


def rows_of_spans(table: str, at: str, where: str = "") -> str:
    """Return a query of the rows, each with the start of its span."""
    return f"SELECT {_SPAN.format(at=at)} AS span, one.* FROM {table} AS one WHERE {_WITHIN.format(at=at)} {where}"  # noqa: S608
