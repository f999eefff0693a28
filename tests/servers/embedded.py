"""Real PostgreSQL and Redis for tests: the embedded stack's own, on free ports, in a folder that goes with them."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from controlplane.common.health import NotReady, broker_check, database_check
from controlplane.stack.config import StackConfig, folders_make, read_stack_config, unprivileged_owner
from controlplane.stack.credentials import credentials_ensure
from controlplane.stack.postgres import Cluster, cluster_prepare, identity
from controlplane.stack.redis_server import redis_command
from tests.suite import outliving
from tests.suite.logs import keep_logs

READY_SECONDS = 120  # no test judges by time
# Tests lose nothing that matters when the machine dies; not waiting for the disk makes them twice as fast.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextlib.contextmanager
def temporary_home(*, copy_of: StackConfig | None = None) -> Iterator[StackConfig]:
    """A stack's home in a folder every user can reach, because PostgreSQL may have to run as another one.

    `copy_of`: a home that no process uses, whose secrets and database it starts with.
    """
    folder = Path(tempfile.mkdtemp(prefix="luminet-test-"))
    folder.chmod(0o755)
    config = read_stack_config({"LUMINET_HOME": str(folder / "home")})
    folders_make(config)
    if copy_of is not None:
        places = [str(place) for name in ("secrets", "postgres") if (place := copy_of.home / name).exists()]
        subprocess.run(["cp", "--archive", *places, str(config.home)], check=True)
    try:
        yield config
    finally:
        keep_logs(folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(config.private_place, ignore_errors=True)


@contextlib.contextmanager
def postgres_running(
    config: StackConfig, *, port: int, url: str, options: Mapping[str, str] = MappingProxyType(FAST)
) -> Iterator[Cluster]:
    owner = unprivileged_owner()
    cluster = cluster_prepare(config, owner=owner, passwords=credentials_ensure(config.secrets))
    command = cluster.command(port, **options)
    with process_running(
        command, config.logs / "postgres.log", lambda: database_check(url), cwd=cluster.data, stop_signal=2
    ):
        yield cluster


@contextlib.contextmanager
def redis_running(config: StackConfig, *, port: int, password: str, url: str) -> Iterator[None]:
    command = redis_command(config, port=port, password=password)
    with process_running(command, config.logs / "redis.log", lambda: broker_check(url), cwd=config.run):
        yield


@contextlib.contextmanager
def process_running(
    command: tuple[str, ...],
    log: Path,
    check: Callable[[], None],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stop_signal: int = 15,
) -> Iterator[None]:
    who = identity(unprivileged_owner()) if "postgres" in log.name else {}
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT, **who)
    outliving.name(process.pid)
    try:
        _wait(process, check, log)
        yield
    finally:
        process.send_signal(stop_signal)
        process.wait(READY_SECONDS)


def _wait(process: "subprocess.Popen[bytes]", check: Callable[[], None], log: Path) -> None:
    began = time.monotonic()
    while True:
        try:
            check()
        except NotReady:
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise RuntimeError(f"a test server did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.05)
        else:
            return
