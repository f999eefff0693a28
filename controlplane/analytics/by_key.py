"""Counts by API key, as parts of an organisation's numbers.

The rest belongs to requests without a key, to agents that do not report keys yet, and to keys beyond the MOST largest.
With it, the parts always add up to the whole.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection

from controlplane.analytics import selectors
from controlplane.analytics.columns import KEY_ADDED
from controlplane.analytics.selectors import Counts
from controlplane.analytics.sums import Scope, counts_by_key
from controlplane.analytics.windows import Span, window_of
from tenants.consistent_reads import consistent_read
from tenants.models import ApiKey

MOST: Final = 1_000
NO_KEY: Final = ""
NOTHING: Final[Counts] = dict.fromkeys(KEY_ADDED, 0)


@dataclass(frozen=True, slots=True)
class Named:
    """A key's name and state. `name` is None if the key was deleted together with its organisation."""

    name: str | None
    prefix: str | None
    is_revoked: bool


GONE: Final = Named(None, None, is_revoked=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """One key's requests in a window, and the time of its last request that is still known."""

    counts: Counts
    last_at: datetime | None


def parts_by_key(scope: Scope, spans: Sequence[Span], whole: Counts) -> list[tuple[UUID | None, Named | None, Counts]]:
    """Return the parts of `whole`, which covers the same spans, most prompt tokens first.

    The part (None, None) is the rest, if there is any.
    """
    counts_of_keys = counts_by_key(scope, spans, most=MOST + 1)  # requests without a key may be among them
    counts_of_keys.pop(NO_KEY, None)
    largest_counts = {key: counts for key, counts in list(counts_of_keys.items())[:MOST] if any(counts.values())}
    names = names_of(scope, largest_counts)
    parts: list[tuple[UUID | None, Named | None, Counts]] = [
        (UUID(key), names.get(key, GONE), counts) for key, counts in largest_counts.items()
    ]
    rest = {name: whole[name] - sum(counts[name] for counts in largest_counts.values()) for name in KEY_ADDED}
    return [*parts, (None, None, rest)] if any(rest.values()) else parts


def names_of(scope: Scope, keys: Collection[str]) -> Mapping[str, Named]:
    """Return the names of the keys, also of revoked ones, which keep their numbers."""
    assert scope.organisation is not None  # the fleet has no numbers by key
    rows = ApiKey.objects.filter(pk__in=keys, organisation_id=scope.organisation) if keys else ()
    return {str(key.pk): Named(key.name, key.prefix, key.revoked_at is not None) for key in rows}


def keys_asked(organisation: int, keys: Collection[UUID], *, window_name: str = "24h") -> dict[UUID, Asked]:
    """Return the usage of each of these keys, as of now."""
    scope = Scope(organisation)
    with consistent_read():
        window = window_of(window_name, selectors.database_now())
        spans = selectors.spans_of(window, is_fleet=False)
        counts_by_id = counts_by_key(scope, spans, most=len(keys), only=map(str, keys))
        last_requests = _last_asked(organisation, keys)
    return {key: Asked(counts_by_id.get(str(key), NOTHING), last_requests.get(str(key))) for key in keys}


def _last_asked(organisation: int, keys: Collection[UUID]) -> dict[str, datetime]:
    """Return each key's last request: its minute while minutes are kept, later the start of its hour or day."""
    parameters: dict[str, Any] = {"organisation": organisation, "keys": [str(key) for key in keys]}
    with connection.cursor() as cursor:
        cursor.execute(_LAST_ASKED, parameters)
        return dict(cursor.fetchall())


# One look at the end of an index for each series, so it reads as many rows as there are series.
_LAST_ASKED: Final = """
SELECT series.key, max(coalesce(
    (
        SELECT minute.minute FROM analytics_keyminute minute
        WHERE minute.series_id = series.id AND minute.requests > 0 ORDER BY minute.minute DESC LIMIT 1
    ),
    (
        SELECT max(piece.start) FROM unnest(ARRAY[3600, 86400]) AS asked(level) CROSS JOIN LATERAL (
            SELECT start FROM analytics_keypiece one
            WHERE one.level = asked.level AND one.series_id = series.id AND one.requests > 0
            ORDER BY start DESC LIMIT 1
        ) AS piece
    )
))
FROM analytics_keyseries series
WHERE series.organisation_id = %(organisation)s AND series.key = ANY(%(keys)s)
GROUP BY 1
"""
