"""An operator's configuration of a stock vLLM, in one TOML file: the admin secret, and how to identify callers."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_agent.prompts.errors import EngineError
from engine_agent.server.state import read_secret

SETTING = "LUMINET_VLLM_CONFIG"
SHORTEST_SECRET = 32
OF_WHOSE = ("identity_secret_files", "keys", "default_namespace")
FIELDS = ("admin_secret_file", "agent_id", *OF_WHOSE, "namespaces")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


class BadConfig(EngineError):
    """The message names the file, the field and the value. vLLM does not start."""


@dataclass(frozen=True, slots=True)
class FrontConfig:
    """At most one of the three ways to identify callers is set; with none, every request is refused."""

    admin_secret: bytes | None = field(default=None, repr=False)
    agent_id: str = "vllm"
    identity_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)  # sha256 of an API key → its namespace
    default_namespace: str | None = None
    namespaces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # policies from the start


def front_config(environ: Mapping[str, str]) -> FrontConfig:
    """Read the configuration. Without a file, every request is refused. Raise BadConfig or BadState."""
    named = environ.get(SETTING, "").strip()
    if not named:
        return FrontConfig()
    path = Path(named)
    try:
        return _read(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as problem:
        raise BadConfig(f"{SETTING}={path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadConfig(f"{path}: is no TOML: {problem}") from problem


def _read(path: Path, told: Mapping[str, Any]) -> FrontConfig:
    for unknown in sorted(told.keys() - set(FIELDS)):
        raise BadConfig(f"{path}: {unknown[:80]}: is none of {', '.join(FIELDS)}")
    ways = [name for name in OF_WHOSE if told.get(name)]
    if len(ways) > 1:
        raise BadConfig(f"{path}: {' and '.join(ways)}: say one of them alone, or a request could be two namespaces'")
    found = FrontConfig(
        agent_id=_named(path, "agent_id", told.get("agent_id", "vllm")),
        keys=_keys(path, told.get("keys", {})),
        namespaces=_table(path, "namespaces", told.get("namespaces", {})),
    )
    if "default_namespace" in told:
        found = replace(found, default_namespace=_named(path, "default_namespace", told["default_namespace"]))
    if "admin_secret_file" in told:
        found = replace(found, admin_secret=_secret(path, "admin_secret_file", told["admin_secret_file"]))
    files = told.get("identity_secret_files", [])
    if not isinstance(files, list):
        raise BadConfig(f"{path}: identity_secret_files: must be a list of files")
    return replace(found, identity_secrets=tuple(_secret(path, "identity_secret_files", one) for one in files))


def _secret(path: Path, name: str, file: object) -> bytes:
    """Read a secret. A relative name starts at the configuration's folder."""
    if not isinstance(file, str):
        raise BadConfig(f"{path}: {name}: must name a file")
    return read_secret(path.parent / file, least=SHORTEST_SECRET)


def _keys(path: Path, told: object) -> Mapping[str, str]:
    keys = _table(path, "keys", told)
    if any(not _HASH.fullmatch(one) for one in keys):
        raise BadConfig(f"{path}: keys: each must be an API key's sha256 in 64 small hexadecimal digits, never the key")
    return {hashed: _named(path, "keys", namespace) for hashed, namespace in keys.items()}


def _table(path: Path, name: str, told: object) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise BadConfig(f"{path}: {name}: must be a table")
    return told


def _named(path: Path, name: str, told: object) -> str:
    if not isinstance(told, str) or not _NAME.fullmatch(told):
        raise BadConfig(f"{path}: {name}: must be up to 64 letters, digits, - and _")
    return told
