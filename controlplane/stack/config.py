"""The stack's own settings and paths. Every path of the embedded stack is named here."""

import hashlib
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.settings.env import CHECKOUT
from controlplane.settings.reader import SettingsReader
from controlplane.stack.errors import StackError
from engine_agent.backends.registry import USUAL, backend_names

PRIVATE_PLACES = Path("/var/lib/luminet")
AGENTS = ("agent-1", "agent-2")
GATEWAY = "gateway-1"
NEEDED_BYTES = 300_000_000  # free disk space that a stack needs to start
STATUS_ABOVE = 100  # a sidecar serves its status at its engine's port plus this


@dataclass(frozen=True, slots=True)
class AgentPlaces:
    """The paths of a demo agent (its sidecar's home, its engine's state) and its ports on loopback."""

    name: str
    home: Path
    state: Path
    port: int
    backend: str = USUAL

    @property
    def status_port(self) -> int:
        return self.port + STATUS_ABOVE

    @property
    def join_token_file(self) -> Path:
        return join_token_file(self.home)


def join_token_file(home: Path) -> Path:
    return home / "join-token"


@dataclass(frozen=True, slots=True)
class StackConfig:
    home: Path
    web_host: str
    web_port: int
    postgres_port: int | None
    redis_port: int | None
    database_url: str | None
    redis_url: str | None
    installs_engine: bool
    engine_port: int | None  # the first agent's engine, the others follow; None: no agents and no gateway
    gateway_port: int
    runs_demo_traffic: bool = True
    backends: tuple[str, ...] = (USUAL, USUAL)  # one for each agent

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def agents(self) -> tuple[AgentPlaces, ...]:
        """Return the demo's agents. An engine's state is where a standalone `luminet engine` would have it."""
        if self.engine_port is None:
            return ()
        return tuple(
            AgentPlaces(name, self.home / name, self.home / f"engine-{port}", port, backend)
            for port, (name, backend) in enumerate(zip(AGENTS, self.backends, strict=True), self.engine_port)
        )

    @property
    def gateway(self) -> Path:
        return self.home / "gateway"

    @property
    def gateway_url(self) -> str | None:
        return None if self.engine_port is None else f"http://127.0.0.1:{self.gateway_port}"

    @property
    def status_file(self) -> Path:
        return self.run / "stack.json"

    @property
    def lock_file(self) -> Path:
        return self.run / "stack.lock"

    @property
    def environment_file(self) -> Path:
        return self.run / "environment.json"

    @property
    def demo_file(self) -> Path:
        return self.home / "demo.json"

    @property
    def static(self) -> Path:
        return self.home / "static"

    @property
    def metrics(self) -> Path:
        return self.run / "metrics"

    @property
    def private_place(self) -> Path:
        """Return the directory for an unprivileged PostgreSQL that cannot enter the home's parent directories."""
        return PRIVATE_PLACES / hashlib.sha256(str(self.home).encode()).hexdigest()[:12]


def is_ours(entry: Path) -> bool:
    return entry.name in OURS or entry.name.startswith((".postgres-", ".demo.json.", "engine-", "agent-", "gateway-"))


def read_stack_config(environ: Mapping[str, str]) -> StackConfig:
    reader = SettingsReader(environ)
    config = StackConfig(
        home=reader.path("LUMINET_HOME", CHECKOUT / ".luminet"),
        web_host=reader.text("LUMINET_WEB_HOST", "127.0.0.1"),
        web_port=reader.port("LUMINET_WEB_PORT", 8000),
        postgres_port=reader.port("LUMINET_POSTGRES_PORT", 0) or None,
        redis_port=reader.port("LUMINET_REDIS_PORT", 0) or None,
        database_url=_optional_url(reader, environ, "LUMINET_DATABASE_URL", ("postgresql", "postgres")),
        redis_url=_optional_url(reader, environ, "LUMINET_REDIS_URL", ("redis", "rediss")),
        installs_engine=reader.flag("LUMINET_INSTALL_ENGINE", True),
        engine_port=reader.port("LUMINET_ENGINE_PORT", 8101) if reader.flag("LUMINET_RUN_ENGINE", True) else None,
        gateway_port=reader.port("LUMINET_GATEWAY_PORT", 8080),
        runs_demo_traffic=reader.flag("LUMINET_DEMO_TRAFFIC", True),
        backends=_backends(reader, "LUMINET_BACKENDS"),
    )
    reader.finish()
    return config


def _backends(reader: SettingsReader, name: str) -> tuple[str, ...]:
    """Return the backend of each agent."""
    usual = (USUAL,) * len(AGENTS)
    backends = reader.words(name, usual)
    if backends == usual or (len(backends) == len(AGENTS) and set(backends) <= set(backend_names())):
        return backends
    there_are = " and ".join(backend_names())
    reader.reject(name, f"{','.join(backends)!r} is not {len(AGENTS)} of {there_are}, such as paged,vllm")
    return usual


def _optional_url(
    reader: SettingsReader, environ: Mapping[str, str], name: str, schemes: tuple[str, ...]
) -> str | None:
    return reader.url(name, schemes) if environ.get(name, "").strip() else None


@dataclass(frozen=True, slots=True)
class Unprivileged:
    """The user that PostgreSQL runs as when we are root, which it refuses."""

    uid: int
    gid: int


def unprivileged_owner() -> Unprivileged | None:
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam("nobody")
    return Unprivileged(account.pw_uid, account.pw_gid)


def is_reachable_by_others(path: Path) -> bool:
    """Return whether another user's process can enter every directory on the path."""
    folders = (parent for parent in path.absolute().parents if parent.exists())
    return all(stat.S_IMODE(folder.stat().st_mode) & stat.S_IXOTH for folder in folders)


# Everything that can be in a home. Other files are not ours: they are never deleted, and a directory that already
# contained other files does not become a home.
OURS = (
    "postgres", "secrets", "logs", "run", "static", "bench", "pictures", "quality", "native", "demo.json", "gateway",
    "audit",
)  # fmt: skip


def folders_make(config: StackConfig) -> None:
    """Create the home, closed to others. As root, others may pass through, so that PostgreSQL gets to its data."""
    config.home.mkdir(parents=True, exist_ok=True)
    foreign_entries = sorted(entry.name for entry in config.home.iterdir() if not is_ours(entry))
    if foreign_entries and not config.run.exists():
        names = ", ".join(foreign_entries[:3])
        raise StackError(f"{config.home} holds other things ({names}): set LUMINET_HOME to an empty folder.")
    config.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
    for folder in (config.secrets, config.logs, config.run):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
