"""Servers that rows measure, ours and vLLM's: each a process with an OpenAI face, started for a row and stopped."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil

from controlplane.stack.vllm_env import VERSION
from engine_agent.tools.loadgen.server import Server
from tests.bench.processes import Launched, launched
from tests.support.ports import free_port

READY_SECONDS = 240.0  # vLLM takes 27 to 47 s where nothing else runs
REST_SECONDS = 10.0
LOOK_SECONDS, IDLE_SHARE = 0.2, 0.2
MODEL_NAME = "bench"
POOL_BYTES = 256 * 2**20
THEIRS = f"vLLM {VERSION}"
OURS_CODE = "import sys; from engine_agent.server.command import main; sys.exit(main(sys.argv[1:]))"
_SERVED = re.compile(r"is served at (https?://\S+/v1)\b")
# One thread, nobody called, nothing downloaded.
THEIR_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}


@dataclass(slots=True)
class Served:
    """A server that answers, and how long it took until it did."""

    server: Server
    process: Launched
    ready_seconds: float

    def resident_mb(self) -> float:
        """Of the process and all it started, in MB of 10^6 bytes."""
        ours = psutil.Process(self.process.process.pid)
        return sum(one.memory_info().rss for one in (ours, *ours.children(recursive=True))) / 1e6

    def rest(self) -> None:
        """Until it computes no more. vLLM's worker goes on asking for work at full speed for a second after a request,
        which would be taken from whoever is measured next.
        """
        deadline = time.monotonic() + REST_SECONDS
        before = self._cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            now = self._cpu_seconds()
            if now - before < LOOK_SECONDS * IDLE_SHARE:
                return
            before = now

    def _cpu_seconds(self) -> float:
        ours = psutil.Process(self.process.process.pid)
        times = [one.cpu_times() for one in (ours, *ours.children(recursive=True))]
        return float(sum(one.user + one.system for one in times))


@contextmanager
def our_engine(model: Path, folder: Path, options: Sequence[str] = ()) -> Iterator[Served]:
    """Alone and as people start it, but for a port and a folder of its own."""
    state, log = folder / "state", folder / "engine.log"
    given = ("--model", str(model), "--name", MODEL_NAME, "--port", "0", "--state", str(state), *options)
    with launched((sys.executable, "-c", OURS_CODE, *given), {}, log=log) as process:

        def address() -> str | None:
            found = _SERVED.search(log.read_text(encoding="utf-8", errors="replace"))
            return found[1] if found else None

        url, seconds = process.wait_for(address, within_seconds=READY_SECONDS)
        key = (state / "api-key").read_text(encoding="utf-8").strip()
        yield Served(Server(url, MODEL_NAME, key), process, seconds)


@contextmanager
def vllm_server(python: Path, model: Path, folder: Path, *, context_tokens: int) -> Iterator[Served]:
    """In one thread and without compilation, which makes its cold prompts about 7 % faster and its start slower."""
    port = free_port()
    given = {
        "--model": str(model),
        "--served-model-name": MODEL_NAME,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--block-size": "32",
        "--dtype": "bfloat16",
        "--kv-cache-memory-bytes": str(POOL_BYTES),
        "--max-model-len": str(context_tokens),
    }
    flags = ("--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details")
    # -P: of this checkout nothing may be taken for a package of theirs
    command = (str(python), "-P", "-m", "vllm.entrypoints.openai.api_server", *sum(given.items(), ()), *flags)
    with launched(command, THEIR_ENVIRONMENT, log=folder / "vllm.log") as process:
        _, seconds = process.wait_for(lambda: _is_healthy(port) or None, within_seconds=READY_SECONDS)
        yield Served(Server(f"http://127.0.0.1:{port}/v1", MODEL_NAME), process, seconds)


def _is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
