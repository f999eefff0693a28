"""This machine: its disks, memory, processors, clock and limits, as the kernel tells them."""

import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from controlplane.doctor.finding import Finding
from controlplane.doctor.judging import clocks, room
from controlplane.doctor.judging.room import DiskSeen, MemorySeen
from controlplane.doctor.place import Place

CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 2**60  # the first version's word for no limit is a number that no machine has


def disks(place: Place) -> Iterator[Finding]:
    """Each file system once, by the first thing of ours that lies on it."""
    seen: set[int] = set()
    for path, holds in _places(place):
        there = _existing(path)
        try:
            device = there.stat().st_dev
            if device not in seen:
                seen.add(device)
                yield from room.disk(_disk(there, holds))
        except OSError:
            continue


def _places(place: Place) -> list[tuple[Path, str]]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    common = [(Path(tempfile.gettempdir()), "temporary files"), (cache, "caches")]
    if place.home is not None:
        return [(place.home, "the spool of reports"), *common]
    if place.config is not None:
        config = place.config
        return [
            (config.home, "database, logs, spools"),
            (config.private_place, "the database"),
            (config.logs, "logs"),
            *common,
        ]
    return common


def _existing(path: Path) -> Path:
    return next((one for one in (path, *path.parents) if one.exists()), Path("/"))


def _disk(path: Path, holds: str) -> DiskSeen:
    found = os.statvfs(path)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return DiskSeen(str(path), holds, free, total, found.f_favail, found.f_files)


def memory(pools_bytes: int | None) -> Iterator[Finding]:
    told = _meminfo(_read(Path("/proc/meminfo")))
    limit, used = _limit()
    yield from room.memory(
        MemorySeen(
            total_bytes=told.get("MemTotal", 0),
            available_bytes=told.get("MemAvailable", told.get("MemFree", 0)),
            limit_bytes=limit,
            used_of_limit_bytes=used,
            swap_used_bytes=told.get("SwapTotal", 0) - told.get("SwapFree", 0),
            swap_total_bytes=told.get("SwapTotal", 0),
            pools_bytes=pools_bytes,
        )
    )


def limits() -> Iterator[Finding]:
    yield room.processors(len(os.sched_getaffinity(0)), _quota())
    yield room.open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 (looked at)
        yield from room.shared_memory(found.f_blocks * found.f_frsize)
    except OSError:
        return


def steady_clock() -> Iterator[Finding]:
    source = _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")).strip()
    yield clocks.monotonic(time.get_clock_info("monotonic").monotonic, source or None)


def _meminfo(text: str) -> Mapping[str, int]:
    """In bytes."""
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) >= 2 and row[1].isdigit()}


def _limit() -> tuple[int | None, int]:
    """Of this container's memory, and what is used of it: by the second version of control groups, or the first."""
    for most, used in (
        (CGROUP / "memory.max", CGROUP / "memory.current"),
        (CGROUP / "memory/memory.limit_in_bytes", CGROUP / "memory/memory.usage_in_bytes"),
    ):
        told = _read(most).strip()
        if told.isdigit() and int(told) < UNLIMITED:
            now = _read(used).strip()
            return int(told), int(now) if now.isdigit() else 0
    return None, 0


def _quota() -> float | None:
    told = _read(CGROUP / "cpu.max").split()
    if len(told) == 2 and told[0].isdigit():
        return int(told[0]) / int(told[1])
    quota, period = (_read(CGROUP / "cpu" / f"cpu.cfs_{one}_us").strip() for one in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
