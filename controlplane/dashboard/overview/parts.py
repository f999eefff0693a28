"""The health of each part of the control plane, for the overview. Probes do I/O; the judgements are pure."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from controlplane.common.health import BEAT_ALIVE_KEY, BEAT_SILENT_SECONDS, redis_client
from controlplane.live.models import Pulse
from controlplane.live.selectors import pulse_latest

PULSE_LATE_SECONDS = 10


ANSWERS, SILENT, STARTING, UNKNOWN = "answers", "silent", "starting", "unknown"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    does: str
    state: str
    evidence: str

    @property
    def is_silent(self) -> bool:
        return self.state == SILENT


def parts_observe(*, now: float) -> list[Part]:
    """Probe every part now."""
    database, broker = _database(), _broker()
    worker_age, beat_age = _worker_age(now), _beat_age(now)
    worker, beat = judge_worker_and_beat(worker_age, beat_age, broker_answers=not broker.is_silent)
    return [
        database,
        broker,
        Part("Worker", "runs tasks", worker, _ago("last task", worker_age)),
        Part("Beat", "starts sweeps", beat, _ago("last sweep", beat_age)),
    ]


def headline(parts: Sequence[Part]) -> str:
    """Return one sentence on all parts. It names causes only: a waiting part is not at fault."""
    silent = [part.name for part in parts if part.is_silent]
    if silent:
        return f"{_listed(silent)} {'do' if silent[1:] else 'does'} not answer"
    waiting = [part.name for part in parts if part.state != ANSWERS]
    if waiting:
        return f"{_listed(waiting)} {'are' if waiting[1:] else 'is'} starting"
    return f"All {len(parts) + 1} parts of the control plane answer"


def advice(parts: Sequence[Part]) -> str:
    """Return what the headline means and what to do about it."""
    silent = [part.name.lower().replace("postgresql", "postgres") for part in parts if part.is_silent]
    if not silent:
        return "Everything below is measured on this installation, now."
    logs = " and ".join(f".luminet/logs/{name}.log" for name in silent)
    return (
        f"What needs it waits, and it is started again if it ended. Why it is silent stands in {logs}, "
        f"or in docker compose logs {' '.join(silent)}."
    )


def pulse_summary(pulses: Sequence[Pulse]) -> dict[str, object]:
    """Return the numbers above the chart: count, median and slowest round trip."""
    values = [pulse.milliseconds for pulse in pulses]
    if not values:
        return {"count": 0, "median_ms": None, "slowest_ms": None}
    return {"count": len(values), "median_ms": round(median(values), 1), "slowest_ms": round(max(values), 1)}


def judge_worker_and_beat(worker_age: float | None, beat_age: float | None, *, broker_answers: bool) -> tuple[str, str]:
    """Return the states of worker and beat. Without the broker beat is unknown; without beat the worker idles."""
    beat = _judge_age(beat_age, late_after=BEAT_SILENT_SECONDS) if broker_answers else UNKNOWN
    worker = _judge_age(worker_age, late_after=PULSE_LATE_SECONDS)
    if worker == SILENT and beat != ANSWERS:
        worker = UNKNOWN
    return worker, beat


def _judge_age(age: float | None, *, late_after: float) -> str:
    if age is None:
        return STARTING
    return ANSWERS if age <= late_after else SILENT


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]


def _database() -> Part:
    does = "keeps what is true"
    started = time.perf_counter()
    try:
        with connection.cursor() as cursor:
            cursor.execute("show server_version")
            version = str(cursor.fetchone()[0]).split()[0]
    except DatabaseError:
        return Part("PostgreSQL", does, SILENT, "no connection")
    return Part("PostgreSQL", does, ANSWERS, f"version {version} · {_milliseconds(started)} for a query")


def _broker() -> Part:
    does = "carries tasks and live messages"
    started = time.perf_counter()
    try:
        with _redis() as client:
            version = client.info("server")["redis_version"]
    except redis.RedisError:
        return Part("Redis", does, SILENT, "no connection")
    return Part("Redis", does, ANSWERS, f"version {version} · {_milliseconds(started)} for a question")


def _worker_age(now: float) -> float | None:
    """Return the seconds since the worker finished the task that beat sends repeatedly, or None."""
    try:
        pulse = pulse_latest()
    except DatabaseError:
        return None
    return None if pulse is None else max(0.0, now - pulse.recorded_at.timestamp())


def _beat_age(now: float) -> float | None:
    try:
        with _redis() as client:
            last_beat = client.get(BEAT_ALIVE_KEY)
    except redis.RedisError:
        return None
    return None if last_beat is None else max(0.0, now - int(last_beat))


def _redis() -> redis.Redis:
    url = settings.ENVIRONMENT.redis_url
    return redis_client(url)


def _milliseconds(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1000:.1f} ms"


def _ago(label: str, age: float | None) -> str:
    return f"{label}: none yet" if age is None else f"{label} {age:.0f} s ago"
