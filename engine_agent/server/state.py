"""An engine's state directory: secrets that outlive the process, and a lock against a second process."""

import fcntl
import json
import secrets
from pathlib import Path
from typing import Any, TextIO

from engine_agent.contracts.files import write_private
from engine_agent.engine.errors import EngineError

SHORTEST_SECRET = 16


class BadState(EngineError):
    """A directory, or a file in it, that cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class StateFolder:
    """The directory, locked until the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: TextIO = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise BadState(folder, "another engine has this folder: give this one another with --state") from None

    def close(self) -> None:
        self._lock.close()

    def secret(self, name: str, prefix: str) -> str:
        """Return the secret in the file, which is created if missing."""
        path = self.folder / name
        if not path.exists():
            write_private(path, f"{prefix}{secrets.token_urlsafe(24)}\n")
        path.chmod(0o600)
        secret = path.read_text(encoding="utf-8", errors="replace").strip()
        if len(secret) < SHORTEST_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise BadState(
                path, f"holds no secret of {SHORTEST_SECRET} or more printable characters; delete it for a new one"
            )
        return secret

    def document(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file, or an empty one if it is missing or invalid."""
        try:
            document = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def keep(self, name: str, document: dict[str, Any]) -> None:
        write_private(self.folder / name, json.dumps(document, indent=1) + "\n")


def read_secret(path: Path, *, least: int) -> bytes:
    """Return a secret that an operator provided, without surrounding white space. Raises BadState."""
    try:
        secret = path.read_bytes().strip()
    except OSError as problem:
        raise BadState(path, f"cannot be read: {problem.strerror}") from problem
    if len(secret) < least:
        raise BadState(path, f"has {len(secret)} bytes, needs at least {least}")
    return secret
