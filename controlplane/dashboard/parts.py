"""How each part of the control plane is doing, as the overview shows it. Probing is here, judging is pure."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from controlplane.health import BEAT_ALIVE_KEY, BEAT_SILENT_SECONDS, redis_client
from controlplane.live.models import Pulse
from controlplane.live.selectors import pulse_latest

PULSE_LATE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    does: str
    is_ok: bool
    state: str
    evidence: str


def parts_observe(*, now: float) -> list[Part]:
    """Ask every part, now."""
    return [_database(), _broker(), *_worker_and_beat(now)]


def headline(parts: Sequence[Part]) -> str:
    """The fact about all of them, as a sentence."""
    silent = [part for part in parts if not part.is_ok]
    if not silent:
        return f"All {len(parts) + 1} parts of the control plane answer"
    names = (
        " and ".join([", ".join(part.name for part in silent[:-1]), silent[-1].name]) if silent[1:] else silent[0].name
    )
    return f"{names} {'do' if silent[1:] else 'does'} not answer"


def advice(parts: Sequence[Part]) -> str:
    """What that means and what to do, below the headline."""
    silent = [part.name.lower().replace("postgresql", "postgres") for part in parts if not part.is_ok]
    if not silent:
        return "Everything below is measured on this installation, now."
    logs = " and ".join(f".luminet/logs/{name}.log" for name in silent)
    return (
        f"What needs it waits, and it is started again if it ended. Why it is silent stands in {logs}, "
        f"or in docker compose logs {' '.join(silent)}."
    )


def pulse_summary(pulses: Sequence[Pulse]) -> dict[str, object]:
    """The numbers above the chart: median and slowest round trip, and how many there were."""
    values = [pulse.milliseconds for pulse in pulses]
    if not values:
        return {"count": 0, "median_ms": None, "slowest_ms": None}
    return {"count": len(values), "median_ms": round(median(values), 1), "slowest_ms": round(max(values), 1)}


def judge_age(age: float | None, *, late_after: float) -> tuple[bool, str]:
    """Whether something last heard `age` seconds ago still counts as answering, and the word for it."""
    if age is None:
        return False, "starting"
    return (True, "answers") if age <= late_after else (False, "silent")


def _database() -> Part:
    does = "keeps what is true"
    started = time.perf_counter()
    try:
        with connection.cursor() as cursor:
            cursor.execute("show server_version")
            version = str(cursor.fetchone()[0]).split()[0]
    except DatabaseError:
        return Part("PostgreSQL", does, False, "silent", "no connection")
    return Part("PostgreSQL", does, True, "answers", f"version {version} · {_milliseconds(started)} for a query")


def _broker() -> Part:
    does = "carries tasks and live messages"
    started = time.perf_counter()
    try:
        with _redis() as client:
            version = client.info("server")["redis_version"]
    except redis.RedisError:
        return Part("Redis", does, False, "silent", "no connection")
    return Part("Redis", does, True, "answers", f"version {version} · {_milliseconds(started)} for a question")


def _worker_and_beat(now: float) -> list[Part]:
    try:
        with _redis() as client:
            sent = client.get(BEAT_ALIVE_KEY)
        beat_age = None if sent is None else max(0.0, now - int(sent))
    except redis.RedisError:
        beat_age = None
    try:
        pulse = pulse_latest()
    except DatabaseError:
        pulse = None
    worker_age = None if pulse is None else max(0.0, now - pulse.recorded_at.timestamp())
    return [
        Part(
            "Worker", "runs tasks", *judge_age(worker_age, late_after=PULSE_LATE_SECONDS), _ago("last task", worker_age)
        ),
        Part(
            "Beat", "starts sweeps", *judge_age(beat_age, late_after=BEAT_SILENT_SECONDS), _ago("last sweep", beat_age)
        ),
    ]


def _redis() -> redis.Redis:
    url = settings.ENVIRONMENT.redis_url
    return redis_client(url)


def _milliseconds(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1000:.1f} ms"


def _ago(what: str, age: float | None) -> str:
    return f"{what}: none yet" if age is None else f"{what} {age:.0f} s ago"
