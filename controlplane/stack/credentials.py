"""The secrets an installation lives on: made once, kept in one folder with mode 0600, never printed by accident."""

import base64
import secrets
from collections.abc import Callable
from pathlib import Path

from engine_agent.contracts.files import write_private


def random_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def random_text() -> str:
    return secrets.token_urlsafe(48)


def random_join_token() -> str:
    """For the agents that are started beside the control plane: they know it before anybody could create one."""
    from tenants.crypto import secret_text  # loads Django's settings, which nothing else here wants

    return secret_text("ljt")


# What production must bring along itself (the names of its environment variables without the prefix, in lower case).
APPLICATION_SECRETS: dict[str, Callable[[], str]] = {
    "secret_key": random_text,
    "master_key": random_key,
    "signing_key": random_key,
    "pepper": random_key,
}
# What only the embedded PostgreSQL and Redis need.
STACK_SECRETS: dict[str, Callable[[], str]] = {
    "postgres_superuser_password": random_text,
    "postgres_owner_password": random_text,
    "postgres_password": random_text,
    "redis_password": random_text,
}
# Of the compose file: the superuser's, the tables' owner's and the application's.
DATABASE_PASSWORDS = ("POSTGRES_PASSWORD", "POSTGRES_OWNER_PASSWORD", "POSTGRES_APP_PASSWORD")


def credentials_ensure(folder: Path) -> dict[str, str]:
    """All secrets of this installation; what is missing is made."""
    return {name: _ensure(folder / name, make) for name, make in {**APPLICATION_SECRETS, **STACK_SECRETS}.items()}


def environment_lines() -> str:
    """A fresh set for production, as lines for an `.env` file."""
    lines = [f"LUMINET_{name.upper()}={make()}" for name, make in APPLICATION_SECRETS.items()]
    lines += [f"LUMINET_JOIN_TOKEN={random_join_token()}"]
    lines += [f"{name}={secrets.token_hex(24)}" for name in DATABASE_PASSWORDS]
    lines += [f"REDIS_PASSWORD={secrets.token_hex(24)}"]
    lines += [f"LUMINET_METRICS_TOKEN={secrets.token_hex(24)}"]
    lines += [f"GRAFANA_PASSWORD={secrets.token_hex(24)}", f"GRAFANA_SECRET_KEY={secrets.token_hex(24)}"]
    return "\n".join(lines)


def _ensure(file: Path, make: Callable[[], str]) -> str:
    if not file.exists():
        write_private(file, make() + "\n")
    return file.read_text(encoding="utf-8").strip()
