"""The services of the embedded stack: commands, environment, order and health checks. Starts nothing.

Agents and gateway are in fleet_services.py.
"""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from controlplane.common.health import (
    beat_check,
    broker_check,
    database_check,
    loopback_address,
    web_check,
    worker_check,
    worker_hostname,
)
from controlplane.database.roles import OWNER_URL, SUPERUSER_URL
from controlplane.settings.env import CHECKOUT
from controlplane.stack.child import Service
from controlplane.stack.config import StackConfig
from controlplane.stack.postgres import DATABASE, OWNER, ROLE, SUPERUSER, Cluster, identity

PING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses in this run of the stack."""

    web: str
    database_url: str
    redis_url: str
    database_owner_url: str | None = None
    database_superuser_url: str | None = None


def luminet(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "controlplane.cli", *arguments)


def application_environment(config: StackConfig, addresses: Addresses, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of web, worker, beat and one-time jobs: the same variables as in production."""
    settings = {
        "LUMINET_HOME": str(config.home),
        "LUMINET_BASE_URL": addresses.web,
        "LUMINET_ALLOWED_HOSTS": "localhost,127.0.0.1,[::1]",
        "LUMINET_DATABASE_URL": addresses.database_url,
        "LUMINET_REDIS_URL": addresses.redis_url,
        "LUMINET_SECRETS_DIR": str(config.secrets),
        "LUMINET_WEB_HOST": config.web_host,
        "LUMINET_WEB_PORT": str(config.web_port),
        "LUMINET_STATIC_ROOT": str(config.static),
        "LUMINET_METRICS_DIR": str(config.metrics),
        "LUMINET_AUDIT_ANCHOR_FILE": str(config.home / "audit" / "anchors.jsonl"),
        "LUMINET_LOG_FORMAT": "text",
        "LUMINET_DEMO": "yes",
        "PYTHONUNBUFFERED": "1",
    }
    overrides = {name: environ[name] for name in ("LUMINET_BASE_URL", "LUMINET_LOG_FORMAT") if environ.get(name)}
    return {**settings, **overrides}


def owner_environment(addresses: Addresses, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the owner's login for jobs that migrate, back up or restore: the embedded one, else the caller's."""
    owner = addresses.database_owner_url or environ.get(OWNER_URL)
    return {OWNER_URL: owner} if owner else {}


def prepare_environment(addresses: Addresses, environ: Mapping[str, str]) -> dict[str, str]:
    superuser = addresses.database_superuser_url
    return {**owner_environment(addresses, environ), **({SUPERUSER_URL: superuser} if superuser else {})}


def redis_url(port: int, password: str) -> str:
    return f"redis://:{password}@127.0.0.1:{port}/0"


def database_url(port: int, password: str, *, login: str = ROLE, name: str = DATABASE) -> str:
    return f"postgresql://{login}:{password}@127.0.0.1:{port}/{name}"


def embedded_logins(port: int, credentials: Mapping[str, str]) -> dict[str, str]:
    """Return the URLs of an embedded PostgreSQL's three logins, by the fields of `Addresses`."""
    return {
        "database_url": database_url(port, credentials["postgres_password"]),
        "database_owner_url": database_url(port, credentials["postgres_owner_password"], login=OWNER),
        "database_superuser_url": database_url(
            port, credentials["postgres_superuser_password"], login=SUPERUSER, name=SUPERUSER
        ),
    }


def postgres_service(cluster: Cluster, *, port: int, url: str) -> Service:
    return Service(
        name="postgres",
        command=cluster.command(port),
        check=partial(database_check, url),
        port=port,
        stop_signal=signal.SIGINT,  # PostgreSQL's fast shutdown
        identity=identity(cluster.owner),
        cwd=cluster.data,
        is_quiet=True,
    )


def redis_service(command: tuple[str, ...], *, port: int, url: str) -> Service:
    return Service(name="redis", command=command, check=partial(broker_check, url), port=port, is_quiet=True)


def application_services(
    config: StackConfig,
    addresses: Addresses,
    environment: Mapping[str, str],
    *,
    owner: Mapping[str, str],
    stores: tuple[str, ...],
) -> list[Service]:
    """Return the preparing job, then web, worker and beat. `stores`: the embedded servers that they need, if any."""
    web_url = loopback_address(config.web_host, config.web_port)
    worker = partial(worker_check, addresses.redis_url, worker_hostname(), timeout_seconds=PING_SECONDS)
    ready = (*stores, "prepare")

    def service(name: str, **details: object) -> Service:
        base = {"name": name, "command": luminet("run", name), "env": environment, "needs": ready, "cwd": CHECKOUT}
        return Service(**{**base, **details})  # type: ignore[arg-type]

    return [
        service(
            "prepare", command=luminet("stack", "prepare"), env={**environment, **owner}, needs=stores, is_job=True
        ),
        service("web", check=partial(web_check, web_url), port=config.web_port),
        service("worker", check=worker),
        service("beat", check=partial(beat_check, addresses.redis_url)),
    ]
