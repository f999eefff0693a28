"""A client that openapi-typescript and openapi-fetch make, type-checked strictly, on a real web process."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.conftest import Web
from tests.clients.environment import HERE

SOURCES = ("drive.ts", "tsconfig.json", "package.json")


def ran(command: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_generated_typescript_client_changes_only_what_it_sets(node_modules: Path, web: Web, tmp_path: Path) -> None:
    for name in SOURCES:
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules)
    tools = node_modules / ".bin"
    ran([str(tools / "openapi-typescript"), "openapi.json", "-o", "schema.d.ts"], tmp_path)
    ran([str(tools / "tsc"), "--project", "tsconfig.json"], tmp_path)
    done: dict[str, Any] = json.loads(ran(["node", "out/drive.js", web.url, web.token], tmp_path))
    assert done["effects"] == ["ttl_seconds: 5 min → 15 min"]
    assert done["published"] == done["rolled_back"] == {"ttl_seconds": 900}
    effective, origin = done["effective"], done["origin"]
    assert (effective["ttl_seconds"], origin["ttl_seconds"]) == (900, "namespace")
    assert (effective["kv_dtype"], origin["kv_dtype"]) == ("int8", "organisation")
    assert {origin[name] for name in effective if name not in ("ttl_seconds", "kv_dtype")} == {"fleet"}
    assert (done["secret"], done["stepwise"], len(set(done["purges"]))) == ("lmk_", 2, 3)
    assert (done["requests"], done["max_keys"], done["table"]) == (0, 1000, "of")
