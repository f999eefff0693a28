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
    config_path = environ.get(SETTING, "").strip()
    if not config_path:
        return FrontConfig()
    path = Path(config_path)
    try:
        return _read(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as problem:
        raise BadConfig(f"{SETTING}={path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadConfig(f"{path}: is no TOML: {problem}") from problem


def _read(path: Path, fields: Mapping[str, Any]) -> FrontConfig:
    for unknown_field in sorted(fields.keys() - set(FIELDS)):
        raise BadConfig(f"{path}: {unknown_field[:80]}: is none of {', '.join(FIELDS)}")
    identity_fields = [name for name in OF_WHOSE if fields.get(name)]
    if len(identity_fields) > 1:
        raise BadConfig(
            f"{path}: {' and '.join(identity_fields)}: say one of them alone, or a request could be two namespaces'"
        )
    config = FrontConfig(
        agent_id=_named(path, "agent_id", fields.get("agent_id", "vllm")),
        keys=_keys(path, fields.get("keys", {})),
        namespaces=_table(path, "namespaces", fields.get("namespaces", {})),
    )
    if "default_namespace" in fields:
        config = replace(config, default_namespace=_named(path, "default_namespace", fields["default_namespace"]))
    if "admin_secret_file" in fields:
        config = replace(config, admin_secret=_secret(path, "admin_secret_file", fields["admin_secret_file"]))
    files = fields.get("identity_secret_files", [])
    if not isinstance(files, list):
        raise BadConfig(f"{path}: identity_secret_files: must be a list of files")
    return replace(config, identity_secrets=tuple(_secret(path, "identity_secret_files", file) for file in files))


def _secret(path: Path, name: str, file: object) -> bytes:
    """Read a secret. A relative name starts at the configuration's folder."""
    if not isinstance(file, str):
        raise BadConfig(f"{path}: {name}: must name a file")
    return read_secret(path.parent / file, least=SHORTEST_SECRET)


def _keys(path: Path, table: object) -> Mapping[str, str]:
    keys = _table(path, "keys", table)
    if any(not _HASH.fullmatch(key_hash) for key_hash in keys):
        raise BadConfig(f"{path}: keys: each must be an API key's sha256 in 64 small hexadecimal digits, never the key")
    return {key_hash: _named(path, "keys", namespace) for key_hash, namespace in keys.items()}


def _table(path: Path, name: str, table: object) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise BadConfig(f"{path}: {name}: must be a table")
    return table


def _named(path: Path, name: str, configured_name: object) -> str:
    if not isinstance(configured_name, str) or not _NAME.fullmatch(configured_name):
        raise BadConfig(f"{path}: {name}: must be up to 64 letters, digits, - and _")
    return configured_name
