"""What stands in front of an engine that answers at once: nothing, a gateway, LiteLLM's proxy; each one process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from controlplane.settings.env import CHECKOUT
from tests.bench.hammer import Door
from tests.bench.litellm_env import LITELLM
from tests.bench.processes import launched
from tests.engines.processes import state_folder
from tests.gateway.snapshots import KEY, MODEL, gateway_snapshot, route, tenants
from tests.integration.test_gateway_process import gateway, joined_before
from tests.support.ports import free_port
from tests.support.waiting import wait_until

AGENT = "agent-1"
CONTEXT_TOKENS = 131_072
MASTER_KEY = f"sk-{'luminet-bench' * 4}"
LITELLM_SECONDS = 180.0  # it loads half a minute where others load as well
KNOWN = f'luminet_gateway_cache_known{{agent="{AGENT}"}} 1.0'


@contextmanager
def instant_engine() -> Iterator[Door]:
    command = [sys.executable, "-m", "tests.bench.instant_engine"]
    process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        yield Door(f"http://127.0.0.1:{int(process.stdout.readline())}", {})
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def our_gateway(engine: Door) -> Iterator[Door]:
    """As `luminet gateway` runs: keys, limits, prompts read and looked for in the engine's cache."""
    with state_folder() as home:
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route(AGENT, engine.url, context_tokens=CONTEXT_TOKENS)))
        with gateway("--home", str(home), "--canary-seconds", "0", "--drain-seconds", "0") as running:
            wait_until(lambda: KNOWN in httpx.get(f"{running.url}/metrics", timeout=30).text)
            yield Door(running.url, {"authorization": f"Bearer {KEY}"}, running.process.pid)


@contextmanager
def litellm_proxy(engine: Door) -> Iterator[Door]:
    """One worker, without a database, logging and telemetry. Raises Unavailable, NotStarted."""
    python = LITELLM.ready_python()
    settings = {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{engine.url}/v1", "api_key": "none"},
            }
        ]
    }
    with state_folder() as folder:
        folder.mkdir()
        (folder / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")  # which is YAML, too
        port = free_port()
        yield from _proxy(python, folder, port)


def _proxy(python: Path, folder: Path, port: int) -> Iterator[Door]:
    options = ("--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port))
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "LITELLM_LOG": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }
    command = [str(python.parent / "litellm"), *options, "--num_workers", "1", "--telemetry", "False"]
    url = f"http://127.0.0.1:{port}"
    with launched(command, environment, log=folder / "log") as running:
        running.wait_for(lambda: _is_alive(url), within_seconds=LITELLM_SECONDS)
        yield Door(url, {"authorization": f"Bearer {MASTER_KEY}"}, running.process.pid)


def _is_alive(url: str) -> bool | None:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=5).status_code == 200 or None
    except httpx.HTTPError:
        return None
