"""Numbers as they are stored, put there without anybody who tells them: for those who read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from controlplane.analytics.columns import ADDED, COUNT_BITS, CUSTOMER_KIND, KEY_ADDED
from controlplane.analytics.models import Rolled
from controlplane.analytics.partitions import partitions_ensure
from controlplane.analytics.rolling import LEVELS, spans_roll
from controlplane.analytics.series import KeySeriesKey, SeriesKey, key_series_ensure, series_ensure
from controlplane.analytics.windows import DAY_SECONDS, floored
from engine_agent.contracts.usage import time_code
from tenants.models import ApiKey, Namespace

NOW = datetime(2026, 11, 22, 12, 30, 15, tzinfo=UTC)  # of tests that need one


@dataclass(frozen=True, slots=True)
class Counted:
    """A row of a minute."""

    namespace: Namespace
    at: datetime
    counts: Mapping[str, int] = field(
        default_factory=lambda: {"requests": 1, "prompt_tokens": 100, "cached_tokens": 60}
    )
    times: Mapping[int, int] = field(default_factory=dict)
    model: str = "m"
    agent: str = "agent-1"
    kind: str = CUSTOMER_KIND
    kv_dtype: str = "bf16"

    @property
    def key(self) -> SeriesKey:
        owner = self.namespace.organisation_id
        return SeriesKey(self.namespace.pk, self.agent, self.model, self.kv_dtype, self.kind, owner)


def counts(requests: int = 1, prompt: int = 100, cached: int = 60, **more: int) -> dict[str, int]:
    return {"requests": requests, "prompt_tokens": prompt, "cached_tokens": cached, **more}


def ttft(milliseconds: float, count: int, *, prompt: int = 100, cached: int = 0) -> dict[int, int]:
    code = time_code("ttft", prompt_tokens=prompt, cached_tokens=cached, milliseconds=milliseconds)
    return {code: count}


def store(*rows: Counted) -> None:
    """Each a row of its own; of one minute of one series there can be one."""
    partitions_ensure(row.at.astimezone(UTC).date() for row in rows)
    series = series_ensure({row.key for row in rows})
    columns = ["series_id", "minute", *ADDED, "times"]
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO analytics_minute ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
            [(series[row.key], row.at.replace(second=0, microsecond=0), *_values(row)) for row in rows],
        )


def store_by_key(
    key: ApiKey, namespace: Namespace, at: datetime, added: Sequence[int], *, model: str = "m", agent: str = "agent-1"
) -> None:
    """What of that minute came with the key, by columns.KEY_ADDED."""
    partitions_ensure([at.astimezone(UTC).date()])
    place = KeySeriesKey(namespace.pk, agent, model, str(key.pk), namespace.organisation_id)
    columns = ", ".join(["series_id", "minute", *KEY_ADDED])
    values: list[Any] = [key_series_ensure([place])[place], at.replace(second=0, microsecond=0), *added]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO analytics_keyminute ({columns}) VALUES ({', '.join(['%s'] * len(values))})", values
        )


def _values(row: Counted) -> tuple[Any, ...]:
    packed = [code << COUNT_BITS | count for code, count in row.times.items()]
    return (*(row.counts.get(name, 0) for name in ADDED), packed)


def rolled(level: int, start: datetime, end: datetime) -> None:
    """Rolls up whatever begins from here to before there, with all that it is added up from."""
    first, step = floored(start, level), timedelta(seconds=level)
    starts = [first + number * step for number in range(-((first - end) // step))]
    if LEVELS[level].source:
        rolled(LEVELS[level].source, first, starts[-1] + step)
    spans_roll(LEVELS[level], starts)
    assert Rolled.objects.filter(level=level, start__in=starts).count() == len(starts)


def days(count: float) -> timedelta:
    return timedelta(seconds=count * DAY_SECONDS)
