"""The secrets that an earlier start of the demo wrote, read as untrusted input, and the passwords known to work."""

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.demo.home import DemoHome
from engine_agent.contracts.files import write_private
from tenants.crypto import purpose_key
from tenants.models import User

Remembered = dict[str, Any]


@dataclass(slots=True)
class Memory:
    """The demo's files. `proven`: keyed hashes of password and stored hash, as scrypt is too slow for every start."""

    operator: Remembered = field(default_factory=dict)
    orgs: list[Remembered] = field(default_factory=list)
    known: frozenset[str] = frozenset()
    proven: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, home: DemoHome) -> "Memory":
        demo, proofs = _json(home.file), _json(home.proofs)
        demo = demo if isinstance(demo, dict) else {}
        return cls(part(demo, "operator"), _dicts(demo.get("orgs")), frozenset(_texts(proofs)))

    def write(self, home: DemoHome) -> None:
        write_private(home.proofs, json.dumps(self.proven) + "\n")

    def organisation(self, slug: str) -> Remembered:
        return next((org for org in self.orgs if org.get("slug") == slug), {})

    def prove(self, user: User, password: str) -> str:
        """Record that this is the user's password."""
        self.proven.append(_proof(user, password))
        return password

    def password_of(self, user: User | None, stored: Remembered) -> str | None:
        """Return the remembered password if it still works, else None: the owner has changed it."""
        password = text(stored, "password")
        if user is None or password is None or not user.is_active:
            return None
        works = _proof(user, password) in self.known or user.check_password(password)
        return self.prove(user, password) if works else None


def demo_keys_read(file: Path) -> dict[str, str]:
    """Return the inference keys that an earlier start wrote, by organisation."""
    demo = _json(file)
    orgs = _dicts(demo.get("orgs")) if isinstance(demo, dict) else []
    keys = {text(org, "slug"): text(org, "api_key") for org in orgs}
    return {slug: key for slug, key in keys.items() if slug and key}


def part(stored: Remembered, name: str) -> Remembered:
    section = stored.get(name)
    return section if isinstance(section, dict) else {}


def text(stored: Remembered, name: str) -> str | None:
    """Return the value if it is ASCII text, else None: every secret that Luminet generates is ASCII."""
    entry = stored.get(name)
    return entry if isinstance(entry, str) and entry.isascii() else None


def _proof(user: User, password: str) -> str:
    message = json.dumps([user.pk, user.password, password]).encode()
    return hmac.digest(purpose_key("pepper", "demo passwords"), message, "sha256").hex()


def _json(file: Path) -> Any:
    """Return the parsed file, or None if it is missing or malformed."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _dicts(entries: Any) -> list[Remembered]:
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _texts(entries: Any) -> Iterable[str]:
    return [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []
