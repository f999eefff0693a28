"""Stock `vllm serve`, in a virtualenv over vLLM's own into which `luminet-vllm` is installed as anybody would."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any

from controlplane.stack.environments import INSTALL, PIP
from controlplane.stack.vllm_env import VLLM
from engine_agent.contracts.identity import HEADER, Identity, sign
from engine_agent.process.config import CHECKOUT
from tests.engines.processes import DEMO
from tests.vllm.environment import OFFLINE

ADMIN, SECRET, AGENT = b"the-secret-of-who-operates-this-server", b"the-secret-that-gateways-and-vllm-share", "vllm-1"
SCHEDULER = "engine_agent.backends.vllm.scheduler.PolicyScheduler"
BLOCK = 32
SIZES = (
    "--max-model-len",
    "1024",
    "--block-size",
    str(BLOCK),
    "--kv-cache-memory-bytes",
    str(2**26),
    "--enforce-eager",
)
START_SECONDS, TOLD_SECONDS = 420, 120
CONFIG = f"""\
admin_secret_file = "admin"
identity_secret_files = ["identity"]
agent_id = "{AGENT}"
[namespaces]
first = {{}}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    header_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def hit(self) -> tuple[int, str]:
        return int(self.headers["x-luminet-cached-tokens"]), self.headers["x-luminet-miss-reason"]

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix(b"data: ") for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]


@dataclass(slots=True)
class StockServer:
    port: int
    _numbers: "count[int]" = field(default_factory=count)

    def fresh(self, blocks: int, extra: int = 1) -> list[int]:
        """A prompt nobody has asked for before."""
        seed = next(self._numbers)
        return [100 + (seed * 31 + place * 13 + place // 7) % 800 for place in range(blocks * BLOCK + extra)]

    def complete(self, namespace: str | None, prompt: object, **fields: Any) -> Answer:
        headers = {} if namespace is None else {HEADER: self.identity(namespace)}
        return self.post("/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 3, **fields}, headers)

    def identity(self, namespace: str) -> str:
        now = time.time()
        return sign(
            Identity(
                organisation_id="o",
                organisation="o",
                namespace_id=namespace,
                namespace=namespace,
                scope="infer",
                policy_revision=0,
                request_id=f"r{next(self._numbers)}",
                attempt=1,
                kind="customer",
                deadline=None,
                issued_at=now,
                expires_at=now + 30,
                audience=AGENT,
            ),
            SECRET,
        )

    def govern(self, **policies: Mapping[str, Any]) -> Answer:
        return self.admin("PUT", "/luminet/policies", {"namespaces": policies})

    def admin(self, method: str, path: str, told: object = None, *, secret: bytes | None = ADMIN) -> Answer:
        headers = {} if secret is None else {"authorization": f"Bearer {secret.decode()}"}
        return self.ask(method, path, b"" if told is None else json.dumps(told).encode(), headers)

    def post(self, path: str, told: object, headers: Mapping[str, str]) -> Answer:
        return self.ask("POST", path, json.dumps(told).encode(), {"content-type": "application/json", **headers})

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TOLD_SECONDS)
        try:
            began = time.monotonic()
            connection.request(method, path, body, dict(headers))
            response: HTTPResponse = connection.getresponse()
            headed = time.monotonic()
            content = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, content, headed - began, time.monotonic() - began)
        finally:
            connection.close()


def plugged_python(folder: Path) -> Path:
    """vLLM's Python with `luminet-vllm` over it: vLLM's own virtualenv stays as it is."""
    base = VLLM.python
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (theirs,) = (base.parent.parent / "lib").glob("python*/site-packages")
    (ours,) = (folder / "lib").glob("python*/site-packages")
    (ours / "vllm.pth").write_text(f"{theirs.resolve()}\n", encoding="utf-8")
    plugin = CHECKOUT / "deploy" / "vllm-plugin"
    subprocess.run([*PIP, "--python", str(python), *INSTALL, "--quiet", str(plugin)], check=True)
    return python


def environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VLLM_PLUGINS")}
    return {**kept, **OFFLINE, **more}


def vllm_command(python: Path, *arguments: str) -> Sequence[str]:
    return [str(python), str(CHECKOUT / "tests" / "vllm" / "stock.py"), *arguments]


@contextmanager
def stock_server(python: Path, folder: Path, port: int) -> Iterator[StockServer]:
    (folder / "admin").write_bytes(ADMIN)
    (folder / "identity").write_bytes(SECRET)
    (folder / "luminet.toml").write_text(CONFIG, encoding="utf-8")
    flags = ["--scheduler-cls", SCHEDULER, "--served-model-name", "demo", "--host", "127.0.0.1", "--port", str(port)]
    # Scale-out endpoints take vLLM's own parameters as clients write them: what is refused there is refused everywhere.
    more = ("--enable-prompt-tokens-details", "--enable-scale-out")
    command = vllm_command(python, "serve", str(DEMO), *flags, *SIZES, *more)
    set_up = environ(VLLM_PLUGINS="luminet", LUMINET_VLLM_CONFIG=str(folder / "luminet.toml"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=set_up, stdout=log, stderr=log)
    try:
        server = StockServer(port)
        until = time.monotonic() + START_SECONDS
        while not _is_healthy(server):
            is_starting = process.poll() is None and time.monotonic() < until
            assert is_starting, (folder / "log").read_text()[-4_000:]
            time.sleep(0.5)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_healthy(server: StockServer) -> bool:
    try:
        return server.ask("GET", "/health", b"", {}).status == 200
    except OSError:
        return False
