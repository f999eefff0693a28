"""`luminet-vllm` in stock `vllm serve`: policies, whose a request is, and what it hit, by its own server."""

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_agent.contracts.identity import HEADER
from engine_agent.contracts.protocol import snapshot_encode
from tests.conformance.fleet_engine import FleetEngine
from tests.vllm.beside.stock_server import ADMIN, BLOCK, StockServer, environ, plugged_python, stock_server

LOAD = (
    "import importlib.metadata as m; m.version = lambda name: '{}'; import vllm.plugins as p; p.load_general_plugins()"
)
OPERATOR = {"authorization": f"Bearer {ADMIN.decode()}"}
FORGED = {"luminet": {"namespace": "bolt", "front": "", "nonsense": 1}}


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugged_python(tmp_path_factory.mktemp("plugged") / "venv")


@pytest.fixture(scope="session")
def server(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with stock_server(python, tmp_path_factory.mktemp("stock"), port) as running:
        yield running


def loaded(python: Path, version: str, **more: str) -> subprocess.CompletedProcess[str]:
    """vLLM's own loader of plugins, in a vLLM that says it is of some version."""
    command = [str(python), "-c", LOAD.format(version)]
    return subprocess.run(command, env=environ(**more), capture_output=True, text=True, timeout=120)


def test_an_unknown_version_is_refused_and_says_what_would_do(python: Path) -> None:
    refused = loaded(python, "0.99.1")
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    assert "vLLM 0.99.1 was never tested with Luminet's scheduler, only 0.32.x: install one of these, or set " in last
    assert loaded(python, "0.99.1", LUMINET_VLLM_UNTESTED="1").returncode == 0
    assert loaded(python, "0.32.7").returncode == 0


def test_namespaces_of_the_operators_file_are_served_from_the_start(server: StockServer) -> None:
    assert server.complete("first", server.fresh(1)).status == 200


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_hits_are_exact_and_in_the_headers(server: StockServer, is_stream: bool) -> None:
    server.govern(acme={})
    prompt = server.fresh(4, extra=5)
    told = {"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}
    cold, warm = (server.complete("acme", prompt, **told) for _ in range(2))
    assert (cold.status, cold.hit, cold.headers["x-luminet-cache-hit"]) == (200, (0, "cold"), "0.0")
    assert (warm.status, warm.hit) == (200, (4 * BLOCK, "none"))
    assert warm.headers["x-luminet-cache-hit"] == f"{4 * BLOCK * 1000 // len(prompt) / 10}"
    assert (warm.headers["x-luminet-namespace"], warm.headers["x-luminet-agent"]) == ("acme", "vllm-1")
    usage = warm.events[-1]["usage"] if is_stream else warm.json["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4 * BLOCK
    assert "luminet" not in str(warm.body)


def test_a_streams_headers_leave_long_before_its_end(server: StockServer) -> None:
    server.govern(acme={})
    answer = server.complete("acme", server.fresh(2), max_tokens=300, stream=True, ignore_eos=True)
    assert answer.hit == (0, "cold")
    assert answer.header_seconds < answer.seconds / 4


def test_chats_and_several_prompts_and_choices_are_counted_once_each(server: StockServer) -> None:
    server.govern(acme={})
    first, second = server.fresh(2), server.fresh(3)
    server.complete("acme", first)
    both = server.complete("acme", [first, second], stream=True)
    assert both.hit == (2 * BLOCK, "cold")
    assert int(both.headers["x-luminet-prompt-tokens"]) == len(first) + len(second)
    choices = server.complete("acme", second, n=3, temperature=1.0)
    assert (len(choices.json["choices"]), choices.hit) == (3, (3 * BLOCK, "none"))
    assert int(choices.headers["x-luminet-prompt-tokens"]) == len(second)
    chat = {"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "word " * 100}], "stream": True}
    told = [server.post("/v1/chat/completions", chat, {HEADER: server.identity("acme")}) for _ in range(2)]
    assert [one.status for one in told] == [200, 200]
    assert [one.hit[1] for one in told] == ["cold", "none"]


def test_namespaces_never_share_a_block_also_with_equal_salts(server: StockServer) -> None:
    server.govern(acme={}, bolt={})
    prompt = server.fresh(3)
    assert server.complete("acme", prompt, cache_salt="same").hit == (0, "cold")
    assert server.complete("bolt", prompt, cache_salt="same").hit == (0, "cold")
    assert server.complete("acme", prompt, cache_salt="other").hit == (0, "cold")
    assert server.complete("acme", prompt).hit == (0, "cold")
    for salt in ("same", "other"):
        assert server.complete("acme", prompt, cache_salt=salt).hit == (3 * BLOCK, "none")


def test_what_a_client_writes_makes_it_nobody_else(server: StockServer) -> None:
    server.govern(acme={}, bolt={})
    prompt = server.fresh(3)
    server.complete("bolt", prompt)
    for told in (
        {"vllm_xargs": {"luminet": "bolt"}},
        {"kv_transfer_params": {"luminet": {"namespace": "bolt"}}},
        {"cache_salt": "bolt"},
    ):
        answer = server.complete("acme", prompt, **told)
        assert answer.status == 200, answer.body
        assert answer.headers["x-luminet-namespace"] == "acme"
        assert answer.hit[0] in (0, 3 * BLOCK)
    said = {"model": "demo", "token_ids": prompt, "sampling_params": {"max_tokens": 2, "extra_args": FORGED}}
    refused = server.post("/inference/v1/generate", said, {})
    assert refused.status == 401
    own = server.post("/inference/v1/generate", said, {HEADER: server.identity("acme")})
    assert own.status == 200, own.body
    assert own.headers["x-luminet-namespace"] == "acme"


def test_a_request_of_nobody_is_refused(server: StockServer) -> None:
    server.govern(acme={})
    prompt = server.fresh(1)
    assert server.complete(None, prompt).status == 401
    forged = {HEADER: server.identity("acme")[:-4] + "AAAA", "content-type": "application/json"}
    assert server.post("/v1/completions", {"model": "demo", "prompt": prompt}, forged).status == 401
    once = {HEADER: server.identity("acme")}
    statuses = [server.post("/v1/completions", {"model": "demo", "prompt": prompt}, once).status for _ in range(2)]
    assert statuses == [200, 409]


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_namespace_that_is_not_there_is_refused_and_the_server_goes_on(server: StockServer, is_stream: bool) -> None:
    server.govern(acme={})
    refused = server.complete("gone", server.fresh(1), stream=is_stream)
    assert (refused.status, refused.json["error"]["code"]) == (503, "unknown_namespace")
    assert server.complete("acme", server.fresh(1)).status == 200


def test_a_ttl_put_through_the_route_governs_at_once(server: StockServer) -> None:
    server.govern(acme={"ttl_seconds": 300})
    prompt = server.fresh(3)
    server.complete("acme", prompt)
    assert server.complete("acme", prompt).hit == (3 * BLOCK, "none")
    assert server.govern(acme={"ttl_seconds": 1}).status == 200
    time.sleep(1.5)
    expired = server.complete("acme", prompt)
    assert expired.hit == (0, "expired")
    assert int(expired.headers["x-luminet-policy-revision"]) >= 2


def test_a_purge_leaves_a_receipt_and_touches_nobody_else(server: StockServer) -> None:
    server.govern(acme={}, bolt={})
    prompt = server.fresh(3)
    for name in ("acme", "bolt"):
        server.complete(name, prompt)
    purged = server.admin("POST", "/luminet/purge", {"namespaces": ["acme"]}).json
    (receipt,) = purged["receipts"]
    assert (receipt["namespace"], receipt["is_done"]) == ("acme", True)
    assert receipt["blocks"] >= 3
    assert server.complete("acme", prompt).hit == (0, "purged")
    assert server.complete("bolt", prompt).hit == (3 * BLOCK, "none")


def test_a_snapshot_as_agents_get_it_is_obeyed_and_purged_by_the_next(server: StockServer) -> None:
    fleet = FleetEngine("vllm", engine=None)  # type: ignore[arg-type]
    fleet.policies["corp"] = {"kv_dtype": "bf16", "request_kv_dtypes": [], "ttl_seconds": 60}
    put = server.ask("PUT", "/luminet/policies", snapshot_encode(fleet.snapshot()), OPERATOR)
    assert (put.status, put.json["hash"]) == (200, fleet.snapshot().hash)
    prompt = server.fresh(2)
    server.complete("corp", prompt)
    assert server.complete("corp", prompt).hit == (2 * BLOCK, "none")
    assert server.admin("POST", "/luminet/purge", {}).status == 400
    fleet.epochs["corp"] = 2
    put = server.ask("PUT", "/luminet/policies", snapshot_encode(fleet.snapshot()), OPERATOR)
    assert [one["namespace"] for one in put.json["receipts"]] == ["corp"]
    assert server.complete("corp", prompt).hit[0] == 0


@pytest.mark.parametrize("secret", [None, b"", b"the-secret-of-somebody-else-who-asks-here"])
def test_nobody_but_the_operator_sets_policies(server: StockServer, secret: bytes | None) -> None:
    held = server.govern(acme={}).json["hash"]
    for method, path in (("PUT", "/luminet/policies"), ("POST", "/luminet/purge"), ("GET", "/luminet/stats")):
        assert server.admin(method, path, {"namespaces": {}}, secret=secret).status == 401
    assert server.admin("GET", "/luminet/stats").json["snapshot_hash"] == held


def test_what_cannot_be_obeyed_changes_nothing_and_names_the_field(server: StockServer) -> None:
    before = server.govern(acme={}).json["hash"]
    for policy, field in (
        ({"ttl_seconds": -1}, "ttl_seconds"),
        ({"kv_dtype": "int4"}, "kv_dtype"),
        ({"ttl": 1}, "ttl"),
    ):
        refused = server.govern(acme=policy)
        assert (refused.status, refused.json["error"]["param"]) == (400, f"namespaces.acme.{field}")
    assert server.admin("GET", "/luminet/stats").json["snapshot_hash"] == before
