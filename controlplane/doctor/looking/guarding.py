"""Who may read what, and what the settings hold."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from controlplane.doctor.finding import Finding, NotExamined, note
from controlplane.doctor.judging import guarding as judging
from controlplane.doctor.judging.guarding import FileSeen
from controlplane.doctor.place import Place
from controlplane.settings.env import CHECKOUT, Environment, read_environment
from controlplane.settings.reader import MalformedSettings
from controlplane.stack.config import StackConfig

ENV_FILE = ".env"
OF_A_HOME = ("credentials", "snapshot", "ledger", "spool", "join-token")


def stack_files(place: Place) -> Iterator[Finding]:
    """Of an embedded stack: its home, its secrets, and what its agents keep."""
    config = place.config
    if config is None or not config.home.exists():
        raise NotExamined("there is no stack's home yet")
    us = os.geteuid()
    home = _seen(config.home, may_be_passed=us == 0)
    folders = [config.secrets, config.run, config.logs]
    files = [*_inside(config.secrets), config.demo_file, config.environment_file, config.run / "redis.conf"]
    agents = [one for folder in _homes(config) for one in (folder, *(folder / name for name in OF_A_HOME))]
    engines = [folder / "identity-secret" for folder in config.home.glob("engine-*")]
    there = [_seen(path) for path in (*folders, *files, *agents, *engines, *_env_files()) if path.exists()]
    yield from judging.files([home, *there], us=us, what=str(config.home))
    yield judging.writable(str(config.home), _write_problem(config.home))


def processes_files(place: Place) -> Iterator[Finding]:
    """Of production's settings: the .env file, mounted secrets, and where metrics and static files lie."""
    there = [_seen(path) for path in _env_files()]
    yield from judging.files(there, us=os.geteuid(), what=ENV_FILE)
    folder = place.environ.get("LUMINET_SECRETS_DIR", "").strip()
    if folder and not Path(folder).is_dir():
        yield judging.writable(folder, "it is not there", name="secrets-folder")
    environment = place.environment
    if environment is None:
        return
    if environment.shared_metrics_dir is not None:
        yield judging.writable(str(environment.metrics_dir), _write_problem(environment.shared_metrics_dir))
    if not environment.static_root.is_dir():
        told = f"There are no static files in {environment.static_root}: pages of a web process here have no style"
        yield note("static", told, "python manage.py collectstatic --no-input")


def home_files(place: Place) -> Iterator[Finding]:
    """Of an agent or a gateway."""
    home = place.home
    if home is None or not home.is_dir():
        raise NotExamined("the home is not there")
    names = (home, *(home / name for name in OF_A_HOME))
    yield from judging.files([_seen(path) for path in names if path.exists()], us=os.geteuid(), what=str(home))
    yield judging.writable(str(home), _write_problem(home))


def settings(place: Place) -> Iterator[Finding]:
    yield from judging.settings(place.bad)


def secrets(place: Place) -> Iterator[Finding]:
    environment = place.environment or _at_rest(place.config)
    if environment is None:
        raise NotExamined("settings cannot be read" if place.bad else "there are none yet")
    yield from judging.secrets(_held(environment))


def _held(environment: Environment) -> Mapping[str, bytes]:
    held = environment.secrets
    values = {
        "LUMINET_SECRET_KEY": held.secret_key.encode(),
        "LUMINET_MASTER_KEY": held.master_key,
        "LUMINET_SIGNING_KEY": held.signing_key,
        "LUMINET_PEPPER": held.pepper,
    }
    if environment.metrics_token:
        values["LUMINET_METRICS_TOKEN"] = environment.metrics_token.encode()
    if held.previous_master_key is not None:
        values["LUMINET_PREVIOUS_MASTER_KEY"] = held.previous_master_key
    return values


def _at_rest(config: StackConfig | None) -> Environment | None:
    """The secrets of a stack that does not run."""
    if config is None or not config.secrets.is_dir():
        return None
    nowhere = {
        "LUMINET_SECRETS_DIR": str(config.secrets),
        "LUMINET_BASE_URL": "http://localhost",
        "LUMINET_DATABASE_URL": "postgresql://localhost/none",
        "LUMINET_REDIS_URL": "redis://localhost/0",
    }
    try:
        return read_environment(nowhere)
    except MalformedSettings:
        return None


def _seen(path: Path, *, may_be_passed: bool = False) -> FileSeen:
    found = path.stat()
    return FileSeen(_shown(path), found.st_mode, found.st_uid, stat.S_ISDIR(found.st_mode), may_be_passed)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _homes(config: StackConfig) -> list[Path]:
    return [*(one.home for one in config.agents), config.gateway]


def _env_files() -> list[Path]:
    """Here, and beside the compose file."""
    return [path for path in dict.fromkeys((Path.cwd() / ENV_FILE, CHECKOUT / ENV_FILE)) if path.is_file()]


def _write_problem(folder: Path) -> str | None:
    """Asked, not tried: nothing is left behind, also on a disk that is full."""
    if not folder.is_dir():
        return "it is no folder" if folder.exists() else "it is not there"
    return None if os.access(folder, os.W_OK | os.X_OK) else "permission denied, or the disk is read-only"


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)
