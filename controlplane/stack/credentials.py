"""The secrets of an installation: created once, stored in one directory with mode 0600, never printed by accident."""

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
    """Return a join token for agents that start together with the control plane, before anyone could create one."""
    from tenants.crypto import secret_text  # it loads Django's settings, which nothing else here needs

    return secret_text("ljt")


# Secrets that production must supply (their environment variables without the prefix, in lower case).
APPLICATION_SECRETS: dict[str, Callable[[], str]] = {
    "secret_key": random_text,
    "master_key": random_key,
    "signing_key": random_key,
    "pepper": random_key,
}
# Secrets of the embedded PostgreSQL and Redis only.
STACK_SECRETS: dict[str, Callable[[], str]] = {
    "postgres_superuser_password": random_text,
    "postgres_owner_password": random_text,
    "postgres_password": random_text,
    "redis_password": random_text,
}
# Variables of the compose file: the passwords of superuser, table owner and application.
DATABASE_PASSWORDS = ("POSTGRES_PASSWORD", "POSTGRES_OWNER_PASSWORD", "POSTGRES_APP_PASSWORD")


def credentials_ensure(folder: Path) -> dict[str, str]:
    """Return all secrets of this installation and create the missing ones."""
    return {name: _ensure(folder / name, make) for name, make in {**APPLICATION_SECRETS, **STACK_SECRETS}.items()}


def environment_lines() -> str:
    """Return a new set of secrets for production, as lines of an `.env` file."""
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
