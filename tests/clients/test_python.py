"""A client that openapi-python-client generates, on a real web process."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Web
from tests.clients.environment import HERE

NO_HOOKS = "post_hooks: []\n"


@pytest.fixture
def client(web: Web, generator: Path, tmp_path: Path) -> Path:
    """The folder with the generated package luminet_client."""
    (tmp_path / "config.yml").write_text(NO_HOOKS)
    package = tmp_path / "luminet_client"
    options = ["--config", "config.yml", "--meta", "none", "--output-path", str(package), "--fail-on-warning"]
    printed = ran(
        [str(generator), "-m", "openapi_python_client", "generate", "--path", "openapi.json", *options], tmp_path
    )
    assert "WARNING" not in printed
    return tmp_path


def ran(command: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_generated_python_client_changes_only_what_it_sets(client: Path, generator: Path, web: Web) -> None:
    done: dict[str, Any] = json.loads(ran([str(generator), str(HERE / "drive.py"), web.url, web.token], client))
    assert (done["organisation"], done["secret"]) == ("acme", "lmk_")
    assert done["sent"] == {"policy": {"ttl_seconds": 900}}
    assert done["canary"] == {"strategy": "canary", "guards": {"min_requests": 5}}
    assert done["effects"] == ["ttl_seconds: 5 min → 15 min"]
    assert done["published"] == done["level"] == done["rolled_back"] == {"ttl_seconds": 900}
    effective, origin = done["effective"], done["origin"]
    assert (effective["ttl_seconds"], origin["ttl_seconds"]) == (900, "namespace")
    assert (effective["kv_dtype"], origin["kv_dtype"]) == ("int8", "organisation")
    assert {origin[name] for name in effective if name not in ("ttl_seconds", "kv_dtype")} == {"fleet"}
    assert (done["stepwise"], len(set(done["purges"])), done["requests"]) == (2, 3, 0)
