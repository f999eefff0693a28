"""Whether there is room: on disks, in memory, in the tables of the kernel."""

from dataclasses import dataclass

from controlplane.doctor.finding import Finding, broken, note, ok, warning

GIB = 2**30
NEEDED_BYTES = 300_000_000  # as `make up` wants to start
LOW_BYTES, LOW_SHARE = 2 * GIB, 0.05
LOW_INODES_SHARE, NO_INODES_SHARE = 0.05, 0.005
FEWEST_FILES, ENOUGH_FILES = 512, 4096
CONTROL_PLANE_BYTES = 768 * 2**20  # what web, worker, beat, PostgreSQL and Redis take together when they do little
SHM_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DiskSeen:
    path: str
    holds: str  # what of ours lies there
    free_bytes: int
    total_bytes: int
    free_inodes: int = 0
    total_inodes: int = 0  # 0: this file system does not count any


def disk(seen: DiskSeen) -> list[Finding]:
    free, of = f"{_size(seen.free_bytes)} of {_size(seen.total_bytes)} free", f"{seen.path} ({seen.holds})"
    do = f"free some space: du -xh {seen.path} | sort -h | tail"
    if seen.free_bytes < NEEDED_BYTES:
        told = f"{of}: {free}, and {_size(NEEDED_BYTES)} are needed: nothing more may be written soon"
        space = broken("space", told, do)
    elif seen.free_bytes < LOW_BYTES and seen.free_bytes < 0.5 * seen.total_bytes:
        space = warning("space", f"{of}: {free}, which is little", do)
    elif seen.total_bytes and seen.free_bytes < LOW_SHARE * seen.total_bytes:
        space = warning("space", f"{of}: {free}, less than {LOW_SHARE:.0%}", do)
    else:
        space = ok("space", f"{of}: {free}")
    return [space, *_inodes(seen)]


def _inodes(seen: DiskSeen) -> list[Finding]:
    if not seen.total_inodes or seen.free_inodes >= LOW_INODES_SHARE * seen.total_inodes:
        return []
    told = f"{seen.path} has {seen.free_inodes:,} inodes left of {seen.total_inodes:,}: no files more can be made soon"
    do = f"delete small files: du --inodes -x {seen.path} | sort -n | tail"
    return [(broken if seen.free_inodes < NO_INODES_SHARE * seen.total_inodes else warning)("inodes", told, do)]


@dataclass(frozen=True, slots=True)
class MemorySeen:
    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None  # of this container
    used_of_limit_bytes: int = 0
    swap_used_bytes: int = 0
    swap_total_bytes: int = 0
    pools_bytes: int | None = None  # of engines that compute on this machine's CPU; None: not known


def memory(seen: MemorySeen) -> list[Finding]:
    total = min(seen.total_bytes, seen.limit_bytes or seen.total_bytes)
    within = seen.total_bytes if seen.limit_bytes is None else seen.limit_bytes - seen.used_of_limit_bytes
    left = min(seen.available_bytes, within)
    by = "" if seen.limit_bytes is None else ", by this container's limit"
    told = f"{_size(left)} of {_size(total)} memory left{by}"
    do = "give it more memory, or run less beside it"
    found = [warning("memory", told, do) if left < 0.1 * total and left < GIB else ok("memory", told)]
    return [*found, *_pools(seen, total), *_swap(seen)]


def _pools(seen: MemorySeen, total: int) -> list[Finding]:
    if not seen.pools_bytes:
        return []
    wanted = seen.pools_bytes + CONTROL_PLANE_BYTES
    told = f"engines here have pools of {_size(seen.pools_bytes)} together, of {_size(total)} memory"
    if wanted <= total:
        return [ok("pools", told[:1].upper() + told[1:])]
    return [warning("pools", f"Too much is promised: {told}", "start engines with a smaller --pool")]


def _swap(seen: MemorySeen) -> list[Finding]:
    if seen.swap_total_bytes and seen.swap_used_bytes > 0.5 * seen.swap_total_bytes:
        told = (
            f"{_size(seen.swap_used_bytes)} of {_size(seen.swap_total_bytes)} swap are used: what waits there is slow"
        )
        return [warning("swap", told, "run less here, or give it more memory")]
    return []


def processors(count: int, quota: float | None) -> Finding:
    if quota is None or quota >= count:
        return ok("cpu", f"{count} CPUs")
    return note("cpu", f"{quota:g} of {count} CPUs, by this container's limit")


def open_files(limit: int) -> Finding:
    told = f"A process may have {limit:,} files and connections open"
    if limit >= ENOUGH_FILES:
        return ok("open-files", told)
    do = "ulimit -n 65536 before it is started, or LimitNOFILE=65536 in its unit"
    if limit < FEWEST_FILES:
        return warning("open-files", f"{told}, too few for a web process or a gateway", do)
    return note("open-files", f"{told}: enough here, few for a gateway with thousands of clients", do)


def shared_memory(size: int | None) -> list[Finding]:
    if size is None or size >= SHM_BYTES:
        return []
    return [
        warning(
            "shm",
            f"Shared memory (/dev/shm) has {_size(size)}: engines want more",
            "--shm-size 1g, or shm_size in compose",
        )
    ]


def _size(count: int) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", GIB)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**20:.0f} MiB"
