"""Checks of this machine: space on disks, in memory and in the kernel's tables; and the tests' browser."""

import importlib
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controlplane.doctor.context import Context
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning
from controlplane.doctor.place import Place
from controlplane.doctor.views import agent_views
from controlplane.stack.config import NEEDED_BYTES

GIB = 2**30
LOW_BYTES, LOW_SHARE = 2 * GIB, 0.05
LOW_INODES_SHARE, NO_INODES_SHARE = 0.05, 0.005
FEWEST_FILES, ENOUGH_FILES = 512, 4096
CONTROL_PLANE_BYTES = 768 * 2**20  # web, worker, beat, PostgreSQL and Redis together, nearly idle
SHM_BYTES = 32 * 2**20
CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 2**60  # version 1 of control groups reports "no limit" as a number beyond any machine's memory


def disks(context: Context) -> Iterator[Finding]:
    """Check each file system once, by our first path on it."""
    checked_devices: set[int] = set()
    for path, contents in _paths(context.place):
        existing_folder = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
        try:
            device, space = existing_folder.stat().st_dev, os.statvfs(existing_folder)
        except OSError:
            continue
        if device not in checked_devices:
            checked_devices.add(device)
            yield from disk_findings(str(existing_folder), contents, space)


def _paths(installation: Place) -> list[tuple[Path, str]]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    common = [(Path(tempfile.gettempdir()), "temporary files"), (cache, "caches")]
    if installation.home is not None:
        return [(installation.home, "the spool of reports"), *common]
    if installation.config is not None:
        home, database, logs = installation.config.home, installation.config.private_place, installation.config.logs
        return [(home, "database, logs, spools"), (database, "the database"), (logs, "logs"), *common]
    return common


def disk_findings(path: str, contents: str, space: os.statvfs_result) -> Iterator[Finding]:
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    says, do = (
        f"{path} ({contents}): {_size(free)} of {_size(total)} free",
        f"free some space: du -xh {path} | sort -h | tail",
    )
    if free < NEEDED_BYTES:
        needed = f"and {_size(NEEDED_BYTES)} are needed: nothing more may be written soon"
        yield broken("space", f"{says}, {needed}", do)
    elif free < LOW_BYTES and free < 0.5 * total:
        yield warning("space", f"{says}, which is little", do)
    elif total and free < LOW_SHARE * total:
        yield warning("space", f"{says}, less than {LOW_SHARE:.0%}", do)
    else:
        yield ok("space", says)
    inodes, all_inodes = space.f_favail, space.f_files  # 0 if the file system does not count them
    if all_inodes and inodes < LOW_INODES_SHARE * all_inodes:
        says = f"{path} has {inodes:,} inodes left of {all_inodes:,}: no files more can be made soon"
        do = f"delete small files: du --inodes -x {path} | sort -n | tail"
        yield (broken if inodes < NO_INODES_SHARE * all_inodes else warning)("inodes", says, do)


@dataclass(frozen=True, slots=True)
class MemorySeen:
    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None  # of this container
    used_of_limit_bytes: int = 0
    swap_used_bytes: int = 0
    swap_total_bytes: int = 0
    pools_bytes: int | None = None  # of engines that compute on this machine's CPU; None: unknown


def memory(context: Context) -> Iterator[Finding]:
    lines = (line.split() for line in _read(Path("/proc/meminfo")).splitlines())
    sizes = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if len(line) >= 2 and line[1].isdigit()}
    limit, used = _memory_limit()
    available = sizes.get("MemAvailable", sizes.get("MemFree", 0))
    swap = sizes.get("SwapTotal", 0)
    swap_used = swap - sizes.get("SwapFree", 0)
    total = sizes.get("MemTotal", 0)
    yield from memory_findings(MemorySeen(total, available, limit, used, swap_used, swap, _pools_bytes(context)))


def memory_findings(memory: MemorySeen) -> Iterator[Finding]:
    total = min(memory.total_bytes, memory.limit_bytes or memory.total_bytes)
    within = memory.total_bytes if memory.limit_bytes is None else memory.limit_bytes - memory.used_of_limit_bytes
    free_bytes = min(memory.available_bytes, within)
    by = "" if memory.limit_bytes is None else ", by this container's limit"
    says, do = f"{_size(free_bytes)} of {_size(total)} memory left{by}", "give it more memory, or run less beside it"
    yield warning("memory", says, do) if free_bytes < 0.1 * total and free_bytes < GIB else ok("memory", says)
    if memory.pools_bytes:
        pools = f"have pools of {_size(memory.pools_bytes)} together, of {_size(total)} memory"
        if memory.pools_bytes + CONTROL_PLANE_BYTES <= total:
            yield ok("pools", f"Engines here {pools}")
        else:
            yield warning("pools", f"Too much is promised: engines here {pools}", "start engines with a smaller --pool")
    if memory.swap_total_bytes and memory.swap_used_bytes > 0.5 * memory.swap_total_bytes:
        used = f"{_size(memory.swap_used_bytes)} of {_size(memory.swap_total_bytes)} swap are used"
        yield warning("swap", f"{used}: what waits there is slow", "run less here, or give it more memory")


def _pools_bytes(context: Context) -> int | None:
    """Return the pool bytes of a running stack's engines that compute in this machine's memory."""
    if context.place.situation != "stack":
        return None
    try:
        views = agent_views(context)
    except Exception:  # the fleet's check reports it
        return None
    return sum(int(agent["pool"]["capacity_bytes"]) for agent in views if agent["accelerator"] is None)


def _memory_limit() -> tuple[int | None, int]:
    """Return this container's memory limit and usage, from version 2 of control groups, else version 1."""
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, used = _read(CGROUP / limit).strip(), _read(CGROUP / usage).strip()
        if most.isdigit() and int(most) < UNLIMITED:
            return int(most), int(used) if used.isdigit() else 0
    return None, 0


def limits(context: Context) -> Iterator[Finding]:
    count, quota = len(os.sched_getaffinity(0)), _processor_quota()
    if quota is None or quota >= count:
        yield ok("cpu", f"{count} CPUs")
    else:
        yield note("cpu", f"{quota:g} of {count} CPUs, by this container's limit")
    yield open_files_finding(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        shared = os.statvfs("/dev/shm")  # noqa: S108 (looked at)
    except OSError:
        return
    size = shared.f_blocks * shared.f_frsize
    if size < SHM_BYTES:
        says = f"Shared memory (/dev/shm) has {_size(size)}: engines want more"
        yield warning("shm", says, "--shm-size 1g, or shm_size in compose")


def open_files_finding(limit: int) -> Finding:
    says = f"A process may have {limit:,} files and connections open"
    if limit >= ENOUGH_FILES:
        return ok("open-files", says)
    do = "ulimit -n 65536 before it is started, or LimitNOFILE=65536 in its unit"
    if limit < FEWEST_FILES:
        return warning("open-files", f"{says}, too few for a web process or a gateway", do)
    return note("open-files", f"{says}: enough here, few for a gateway with thousands of clients", do)


def _processor_quota() -> float | None:
    """Return this container's CPU limit, from either version of control groups."""
    parts = _read(CGROUP / "cpu.max").split() or [
        _read(CGROUP / "cpu" / f"cpu.cfs_{part}_us").strip() for part in ("quota", "period")
    ]
    is_limited = len(parts) == 2 and all(part.isdigit() for part in parts)
    return int(parts[0]) / int(parts[1]) if is_limited else None


def chromium(_: Context) -> Iterator[Finding]:
    """Check for the Chromium of a checkout's browser tests: named by variable, installed, or unpacked earlier."""
    try:
        tests = importlib.import_module("tests.e2e.chromium")
    except ModuleNotFoundError:
        raise NotExamined("the tests are not here") from None
    commands: tuple[str, ...] = tests.COMMANDS
    path = os.environ.get(tests.VARIABLE) or next(filter(None, map(shutil.which, commands)), None)
    if path is not None:
        yield ok("chromium", f"Browser tests use {path}")
        return
    unpacked: Path = tests.default_cache_dir()
    if any(unpacked.glob("*")):
        yield ok("chromium", f"Browser tests use Debian's Chromium, unpacked in {unpacked}")
    else:
        says = "No Chromium here: browser tests unpack Debian's, without root, when they first run (about 110 MB)"
        yield note("chromium", says, "sudo apt-get install chromium saves that")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _size(count: int) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", GIB)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**20:.0f} MiB"
