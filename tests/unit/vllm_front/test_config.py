"""What an operator may say of a stock vLLM, and what is refused before it starts."""

from hashlib import sha256
from pathlib import Path

import pytest

from engine_agent.server.state import BadState
from engine_agent.vllm_front.config import SETTING, BadConfig, FrontConfig, front_config

HASHED = sha256(b"key").hexdigest()


def read(folder: Path, text: str) -> FrontConfig:
    (folder / "luminet.toml").write_text(text)
    return front_config({SETTING: str(folder / "luminet.toml")})


def test_without_a_file_nobody_is_let_in() -> None:
    assert front_config({}) == FrontConfig()


def test_a_file_says_everything(tmp_path: Path) -> None:
    (tmp_path / "admin").write_bytes(b"a" * 40 + b"\n")
    found = read(
        tmp_path, f'admin_secret_file = "admin"\nkeys = {{"{HASHED}" = "acme"}}\nnamespaces.acme.ttl_seconds = 9'
    )
    assert (found.admin_secret, found.keys) == (b"a" * 40, {HASHED: "acme"})
    assert found.namespaces == {"acme": {"ttl_seconds": 9}}
    assert "aaaa" not in repr(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ttl = 1", "ttl: is none of admin_secret_file, agent_id"),
        ("admin_secret_file = 1", "admin_secret_file: must name a file"),
        ('keys = {"sk-secret" = "acme"}', "keys: each must be an API key's sha256"),
        (f'keys = {{"{HASHED}" = "a/b"}}', "keys: must be up to 64 letters"),
        ('default_namespace = ""', "default_namespace: must be up to 64 letters"),
        (f'default_namespace = "a"\nkeys = {{"{HASHED}" = "a"}}', "keys and default_namespace: say one of them alone"),
        ('identity_secret_files = "one"', "identity_secret_files: must be a list"),
        ("namespaces = []", "namespaces: must be a table"),
        ("=", "is no TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadConfig, match=r"luminet\.toml") as refused:
        read(tmp_path, text)
    assert problem in str(refused.value)
    assert "sk-secret" not in str(refused.value)


def test_a_secret_that_is_short_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"a")
    for name in ("short", "missing"):
        with pytest.raises(BadState, match=name):
            read(tmp_path, f'admin_secret_file = "{name}"')
    with pytest.raises(BadConfig, match="No such file"):
        front_config({SETTING: str(tmp_path / "none.toml")})
