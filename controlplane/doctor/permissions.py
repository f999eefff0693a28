"""Check who may read and write our files, by mode and owner."""

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.doctor.context import Context
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning
from controlplane.doctor.place import shown
from controlplane.settings.env import CHECKOUT

ENV_FILE = ".env"
AGENT_FILES = ("credentials", "snapshot", "ledger", "spool", "join-token")


def stack_files(context: Context) -> Iterator[Finding]:
    """Check an embedded stack's files: its home, its secrets and its agents' files."""
    config = context.place.config
    if config is None or not config.home.exists():
        raise NotExamined("there is no stack's home yet")
    folders = [config.secrets, config.run, config.logs]
    files = [*_files_in(config.secrets), config.demo_file, config.environment_file, config.run / "redis.conf"]
    agents = [path for agent in config.agents for path in _agent_paths(agent.home)]
    engines = [folder / "identity-secret" for folder in config.home.glob("engine-*")]
    paths = [*folders, *files, *agents, *_agent_paths(config.gateway), *engines, *_env_files()]
    home = _seen(config.home, may_be_passed=os.geteuid() == 0)
    file_states = [home, *(_seen(path) for path in paths if path.exists())]
    yield from file_findings(file_states, us=os.geteuid(), what=str(config.home))
    yield _writable(config.home)


def processes_files(context: Context) -> Iterator[Finding]:
    """Check production's files: the .env file, mounted secrets, and the directories of metrics and static files."""
    yield from file_findings([_seen(path) for path in _env_files()], us=os.geteuid(), what=ENV_FILE)
    folder = context.place.environ.get("LUMINET_SECRETS_DIR", "").strip()
    if folder and not Path(folder).is_dir():
        yield _not_writable("secrets-folder", folder, "it is not there")
    environment = context.place.environment
    if environment is None:
        return
    if environment.shared_metrics_dir is not None:
        yield _writable(environment.shared_metrics_dir)
    if not environment.static_root.is_dir():
        says = f"There are no static files in {environment.static_root}: pages of a web process here have no style"
        yield note("static", says, "python manage.py collectstatic --no-input")


def agent_files(context: Context) -> Iterator[Finding]:
    """Check the files of an agent or gateway."""
    home = context.place.home
    if home is None or not home.is_dir():
        raise NotExamined("the home is not there")
    file_states = [_seen(path) for path in _agent_paths(home) if path.exists()]
    yield from file_findings(file_states, us=os.geteuid(), what=str(home))
    yield _writable(home)


@dataclass(frozen=True, slots=True)
class FileSeen:
    path: str  # as shown to people
    mode: int
    owner: int
    may_be_passed: bool = False  # root's directory, through which PostgreSQL's user reaches its data

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def right_mode(self) -> int:
        if not self.is_folder:
            return 0o600
        return 0o711 if self.may_be_passed else 0o700


def file_findings(file_states: Sequence[FileSeen], *, us: int, what: str) -> list[Finding]:
    """Evaluate the files. `us`: the current user, who should own them."""
    findings = [finding for file in file_states if (finding := _file_finding(file, us)) is not None]
    if findings or not file_states:
        return findings
    count = sum(not file.is_folder for file in file_states)
    return [ok("files", f"{what}: {count} files with secrets are for their owner alone")]


def _file_finding(file: FileSeen, us: int) -> Finding | None:
    path = shlex.quote(file.path)
    extra = stat.S_IMODE(file.mode) & 0o077 & ~file.right_mode
    if extra:
        action = "written" if extra & 0o022 else "read" if not file.is_folder else "looked into"
        says = f"{file.path} can be {action} by others (mode {stat.S_IMODE(file.mode):04o})"
        return broken("files", says, f"chmod {file.right_mode:o} {path}")
    if file.owner not in (us, 0) and us != 0:
        return warning(
            "files", f"{file.path} belongs to user {file.owner}, and you are {us}", f"sudo chown {us} {path}"
        )
    return None


def _writable(folder: Path) -> Finding:
    """Check write permission without creating a file, so that nothing is left behind, even on a full disk."""
    if not folder.is_dir():
        return _not_writable("writable", str(folder), "it is no folder" if folder.exists() else "it is not there")
    if os.access(folder, os.W_OK | os.X_OK):
        return ok("writable", f"{folder} can be written")
    return _not_writable("writable", str(folder), "permission denied, or the disk is read-only")


def _not_writable(name: str, path: str, problem: str) -> Finding:
    return broken(name, f"{path} cannot be written: {problem}", f"sudo chown -R $(id -un) {shlex.quote(path)}")


def _seen(path: Path, *, may_be_passed: bool = False) -> FileSeen:
    status = path.stat()
    return FileSeen(shown(path), status.st_mode, status.st_uid, may_be_passed)


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _agent_paths(home: Path) -> list[Path]:
    return [home, *(home / name for name in AGENT_FILES)]


def _env_files() -> list[Path]:
    """Return the .env files in the current directory and next to the compose file."""
    return [path for path in dict.fromkeys((Path.cwd() / ENV_FILE, CHECKOUT / ENV_FILE)) if path.is_file()]
