"""An engine of a fleet, whichever backend computes: a real process, asked as gateways and sidecars ask."""

import base64
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from engine_agent.contracts.enforcement import enforcement_decode
from engine_agent.contracts.identity import HEADER, Identity, sign
from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build, snapshot_encode
from tests.engines.processes import Answer, Engine, engine, state_folder
from tests.vllm.processor import vllm_format

SECRET = b"the-secret-that-gateways-and-engines-share"
AGENT = "agent-1"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "paged": ("--context", "1024"),
    "vllm": ("--backend", "vllm", "--kv-dtype", vllm_format(), "--context", "1024"),
}
KV_DTYPES: Mapping[str, str] = {"paged": "fp8", "vllm": vllm_format()}
MOST_REQUESTS = 50  # until a pool of 32 MiB, or a share of it, is full; seven are enough
START_SECONDS = 420  # vLLM on a busy machine
Policy = Mapping[str, Any]


@dataclass(slots=True)
class FleetEngine:
    backend: str
    engine: Engine
    epochs: dict[str, int] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    pins: dict[str, dict[str, Any]] = field(default_factory=dict)
    revision: int = 0
    _seeds: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def block(self) -> int:
        return int(self.stats["model"]["block_tokens"])

    @property
    def stats(self) -> Any:
        return self.engine.admin("GET", "/stats").json

    def namespace(self, name: str) -> Any:
        return next((one for one in self.stats["namespaces"] if one["namespace"] == name), None)

    def fresh(self, blocks: int, extra: int = 1) -> list[int]:
        """A prompt nobody has asked for before."""
        seed = next(self._seeds)
        digest = sha256(f"{self.engine.state} {seed}".encode()).digest()
        return [
            100 + (digest[place % 32] * 7 + place * 13 + seed) % 800 for place in range(blocks * self.block + extra)
        ]

    # What the control plane says

    def govern(self, **policies: Policy) -> str:
        """These namespaces, and those from before; the rest of a policy is what all tests can live with."""
        for name, policy in policies.items():
            self.policies[name] = {
                "kv_dtype": KV_DTYPES[self.backend],
                "request_kv_dtypes": [],
                "ttl_seconds": 3600,
                **policy,
            }
        return self.apply()

    def purge(self, name: str) -> str:
        self.epochs[name] = self.epochs.get(name, 1) + 1
        return self.apply()

    def apply(self) -> str:
        self.revision += 1
        told = self.snapshot()
        answer = self.engine.admin("POST", "/apply", raw=snapshot_encode(told))
        assert answer.json == {"hash": told.hash}, answer
        return told.hash

    def snapshot(self) -> Snapshot:
        entries: dict[str, Any] = dict(self.pins)
        for name, policy in self.policies.items():
            epoch = self.epochs.get(name, 1)
            entries[f"org/{name}"] = {"org": name, "slug": name, "state": "active", "limits": {}}
            key = base64.b64encode(sha256(f"{name} {epoch}".encode()).digest()).decode()
            entry = {"org": name, "slug": name, "epoch": epoch, "key": key, "revision": self.revision}
            entries[f"ns/{name}"] = {**entry, "policy": policy_hash(policy)}
        return snapshot_build("engine", entries, {policy_hash(policy): policy for policy in self.policies.values()})

    def pin(self, pin_id: str, name: str, tokens: list[int]) -> None:
        about = {"name": pin_id, "model": "demo", "kind": "token_ids", "bytes": 4 * len(tokens), "expires_at": None}
        self.pins[f"pin/{pin_id}"] = {"org": name, "ns": name, **about}
        self.apply()
        self.engine.admin("PUT", f"/pins/{pin_id}/content", {"token_ids": tokens})

    # What gateways ask

    def headers(self, name: str, **more: Any) -> dict[str, str]:
        known = Identity(
            organisation_id=name,
            organisation=name,
            namespace_id=name,
            namespace=name,
            scope="infer",
            policy_revision=self.revision,
            request_id=f"r-{time.monotonic_ns()}",
            attempt=1,
            kind="customer",
            deadline=None,
            issued_at=time.time(),
            expires_at=time.time() + 60,
            audience=AGENT,
        )
        return {HEADER: sign(replace(known, **more), SECRET)}

    def complete(self, name: str, prompt: object, **fields: Any) -> Answer:
        body = {"model": "demo", "prompt": prompt, "max_tokens": 2, "temperature": 0, **fields}
        return self.engine.ask("POST", "/v1/completions", body, **self.headers(name))

    def cached(self, name: str, prompt: list[int], **fields: Any) -> int:
        answer = self.complete(name, prompt, **fields)
        assert answer.status == 200, answer
        told = int(answer.headers["x-luminet-cached-tokens"])
        assert answer.json["usage"]["prompt_tokens_details"]["cached_tokens"] == told
        return told

    def missed(self, name: str, prompt: list[int], **fields: Any) -> tuple[int, str]:
        headers = self.complete(name, prompt, **fields).headers
        return int(headers["x-luminet-cached-tokens"]), headers["x-luminet-miss-reason"]

    @contextmanager
    def streaming(self, name: str, prompt: object, **fields: Any) -> Iterator[HTTPResponse]:
        body = {"model": "demo", "prompt": prompt, "temperature": 0, "stream": True, **fields}
        connection = HTTPConnection("127.0.0.1", self.engine.port, timeout=120)
        about = {"content-type": "application/json", **self.headers(name)}
        connection.request("POST", "/v1/completions", json.dumps(body).encode(), about)
        try:
            yield connection.getresponse()
        finally:
            connection.close()


@contextmanager
def fleet_engine(backend: str, *more: str) -> Iterator[FleetEngine]:
    """With these options besides."""
    with state_folder() as state:
        state.mkdir()
        secret = state.parent / "identity-secret"
        secret.write_bytes(SECRET)
        options = (*OPTIONS[backend], *more, "--identity-secret-file", str(secret), "--agent-id", AGENT)
        with engine(*options, state=state, ready_seconds=START_SECONDS) as running:
            yield FleetEngine(backend, running)


def displaced(agent: FleetEngine, name: str, tokens: list[int]) -> None:
    """These tokens, hit once, have left the device, because their namespace has a limit and asks for others."""
    for _ in range(2):
        agent.complete(name, tokens)
    for _ in range(MOST_REQUESTS):
        counters = agent.namespace(name)["counters"]
        if counters["quota_blocks"] + counters["demoted_blocks"] >= len(tokens) // agent.block:
            return
        agent.complete(name, agent.fresh(8))
    raise AssertionError("its limit never cost it these blocks")


def offload_grades(agent: FleetEngine) -> dict[str, str]:
    """As its sidecar reads them."""
    declared: Any = enforcement_decode(agent.stats["model"]["enforcement"])["offload"]
    return {value: graded.grade for value, graded in declared.items()}
