"""Every service of docker-compose.yml's default set, as a plain process: in order, healthy, and gone in the end."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from urllib.error import URLError

import psutil
import psycopg
import pytest
import redis
from kombu import Connection
from kombu.exceptions import OperationalError

from controlplane.stack.ports import port_is_free
from engine_agent.backends.vllm.environment import PYTHON as VLLMS_PYTHON
from engine_agent.contracts.protocol import broker_url_verified
from tests.compose.remote import certificates_make, haproxy_script, metric, remote_agent_running
from tests.compose.twin import CHECK_SECONDS, READY_SECONDS, Part, Twin, twin_running
from tests.compose.users import Customer, Operator, eventually

# Ended by itself, or by the SIGTERM it handled first and then let have its way (uvicorn).
GOOD_ENDS = {"web": {0, -signal.SIGTERM}}


EMAIL = "you@example.com"


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with twin_running() as running:
        yield running


@pytest.fixture(scope="class")
def remote(twin: Twin, operator: Operator) -> Iterator[Part]:
    certificates_make(twin.place / "tls")
    haproxy = twin.place / "bin" / "haproxy"
    haproxy.write_text(f"#!/bin/sh\n{haproxy_script(haproxy.parent)}\n")
    haproxy.chmod(0o755)
    with twin.running("broker") as broker:
        twin.await_condition(broker, "service_healthy")
        token = operator.rest("POST", "/fleet/join-tokens", {"name": "another machine", "agent": "remote-1"})["secret"]
        with remote_agent_running(twin, token) as agent:
            twin.await_condition(agent, "service_healthy")
            yield agent


def test_it_comes_up_in_order_healthy_and_ready(twin: Twin) -> None:
    status, _, body = twin.get("/readyz")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert set(twin.parts) == {name for name, service in twin.services.items() if not service.get("profiles")}


def test_the_pulse_goes_through_beat_redis_worker_and_postgres(twin: Twin) -> None:
    deadline = time.monotonic() + 10
    while (age := json.loads(twin.get("/readyz")[2])["pulse_age_seconds"]) is None and time.monotonic() < deadline:
        time.sleep(CHECK_SECONDS)
    assert age is not None, "\n".join(twin.parts[name].said() for name in ("beat", "worker"))
    assert age < 10


@pytest.fixture(scope="module")
def operator(twin: Twin) -> Operator:
    """Made with the documented command, and with a token for REST."""
    password = json.loads(twin.luminet("create-operator", EMAIL))["password"]
    return Operator(twin, password, json.loads(twin.luminet("operator-token", EMAIL, "--json"))["secret"])


@pytest.fixture(scope="module")
def customer(operator: Operator) -> Customer:
    """An organisation, a namespace and a key, made through REST."""
    operator.rest("POST", "/orgs", {"slug": "acme", "name": "Acme"})
    operator.rest("POST", "/orgs/acme/namespaces", {"slug": "chat", "name": "Chat"})
    made = operator.rest("POST", "/orgs/acme/keys", {"name": "app", "scopes": ["infer"], "namespaces": ["chat"]})
    return Customer(operator.twin, made["secret"])


def test_whom_the_documented_command_made_signs_in(operator: Operator) -> None:
    assert operator.signs_in(operator.password) == "/"
    assert operator.signs_in("another one") is None


def test_a_streamed_answer_misses_and_the_same_again_hits(customer: Customer) -> None:
    first, second = customer.asked_until(), customer.asked()
    assert (first.agent, first.text) == ("agent-1", second.text)
    assert second.text
    assert (first.hit, first.reason) == (0.0, "cold")
    assert second.hit > 0.5


def test_a_policy_is_acknowledged_by_the_agent_with_its_hash_and_what_expires_by_it_is_missed(
    operator: Operator, customer: Customer
) -> None:
    operator.published("acme/chat", {"ttl_seconds": 1})
    assert customer.asked().revision == 1
    time.sleep(1.2)
    again = customer.asked()
    assert (again.hit, again.reason) == (0.0, "expired")


def test_what_was_asked_is_counted_to_the_token(operator: Operator, customer: Customer) -> None:
    def counted() -> dict[str, int]:
        shown = operator.rest("GET", "/orgs/acme/stats")
        return {name: shown[name] for name in ("requests", "prompt_tokens", "cached_tokens")}

    expected = {
        "requests": len(customer.answers),
        "prompt_tokens": sum(one.prompt_tokens for one in customer.answers),
        "cached_tokens": sum(one.cached_tokens for one in customer.answers),
    }
    assert eventually(counted, lambda found: found == expected) == expected


def test_a_restarted_redis_gives_every_agent_its_login_back_and_the_next_policy_arrives(
    twin: Twin, operator: Operator, customer: Customer
) -> None:
    twin.restart("redis")
    operator.published("acme/chat", {"ttl_seconds": 600}, expected=1)
    assert customer.asked().revision == 2
    names = eventually(lambda: redis_cli(twin, "acl", "users"), lambda found: "agent.agent-1" in found)
    assert "agent.agent-1" in names


def test_a_purge_is_proven_with_a_receipt_and_nothing_is_found_any_more(operator: Operator, customer: Customer) -> None:
    customer.asked()
    assert customer.asked().hit > 0.5
    started = operator.rest("POST", "/orgs/acme/namespaces/chat/purge", {})
    path = f"/operations/{started['operation']}"
    done = eventually(lambda: operator.rest("GET", path), lambda found: found["state"] == "done")
    assert done["state"] == "done", done
    assert {one["agent"]: one["blocks"] > 0 for one in done["receipts"]} == {"agent-1": True, "gateway-1": False}
    assert customer.asked().hit == 0.0


class TestAnotherMachine:
    def test_an_agent_of_another_machine_joins_through_the_broker_with_tls_and_obeys(
        self, twin: Twin, operator: Operator, customer: Customer, remote: Part
    ) -> None:
        """Profile `remote`, and the service of docker-compose.agent.yml with an authority of our own."""
        shown = eventually(lambda: operator.agent("remote-1"), lambda found: found and found["state"] == "ready")
        assert shown["state"] == "ready", remote.said() + twin.said("broker")
        kept = json.loads((twin.place / "volumes" / "remote-1-agent" / "credentials").read_text())
        assert kept["broker"]["url"].startswith("rediss://agent.remote-1.")
        commands = 'luminet_sidecar_commands_total{outcome="applied"}'
        before = metric(twin, commands)
        operator.published("acme/chat", {"ttl_seconds": 300}, expected=2, agents={"agent-1", "remote-1"})
        assert metric(twin, commands) > before, "by the broker, not by a pull"
        operator.rest("POST", "/fleet/agents/agent-1/drain", {})
        assert customer.asked_until(lambda answer: answer.agent == "remote-1").revision == 3
        operator.rest("POST", "/fleet/agents/agent-1/resume", {})

    def test_nobody_is_let_in_there_without_a_login_and_no_other_certificate_is_believed(
        self, twin: Twin, remote: Part
    ) -> None:
        place = f"rediss://127.0.0.1:{twin.ports['broker']}/0"
        trusted = str(twin.place / "tls" / "ca.pem")
        with (
            redis.Redis.from_url(f"{place}?ssl_ca_certs={trusted}") as client,
            pytest.raises(redis.AuthenticationError),
        ):
            client.ping()
        with (
            Connection(broker_url_verified(place)) as stranger,
            pytest.raises(OperationalError, match="CERTIFICATE_VERIFY"),
        ):
            stranger.ensure_connection(max_retries=1)


def test_the_sidecar_of_vllm_joins_and_its_engine_says_what_is_missing(twin: Twin, operator: Operator) -> None:
    """As far as that goes without vLLM. Where there is one, tests/vllm runs it."""
    if VLLMS_PYTHON.exists():
        pytest.skip("vLLM is installed here, so its engine would start, and find no GPU")
    with twin.running("agent-vllm") as sidecar, twin.running("engine-vllm") as engine:
        twin.await_condition(sidecar, "service_healthy")
        engine.process.wait(READY_SECONDS)
        assert (engine.process.returncode, "vLLM is not installed" in engine.said()) == (1, True), engine.said()
        shown = eventually(lambda: operator.agent("agent-vllm-1"), lambda found: found and found["state"] == "down")
        assert (shown["kind"], shown["state"]) == ("engine", "down")
        assert sidecar.stop() == 0, sidecar.said()


def test_what_an_agent_keeps_is_for_its_owner_alone(twin: Twin) -> None:
    secrets = [twin.place / "volumes" / "agent" / "credentials", twin.place / "volumes" / "engine" / "identity-secret"]
    assert [path.stat().st_mode & 0o777 for path in secrets] == [0o600, 0o600]


def test_the_sign_in_page_comes_with_the_files_the_image_was_built_with(twin: Twin) -> None:
    status, kind, page = twin.get("/sign-in")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    sheets = re.findall(r'href="(/static/[^"]+\.css)"', page)
    assert sheets
    for sheet in sheets:
        assert re.search(r"\.[0-9a-f]{12}\.css$", sheet), "named by its content, as collectstatic names it"
        status, kind, _ = twin.get(sheet)
        assert (status, kind.partition(";")[0]) == (200, "text/css")


def test_metrics_come_from_the_folder_the_web_processes_share(twin: Twin) -> None:
    assert "luminet_http_requests_total" in twin.get("/metrics")[2]
    assert list((twin.place / "tmp" / "metrics").iterdir())


def redis_cli(twin: Twin, *words: str, login: bool = True) -> str:
    part = twin.parts["redis"]
    environment = {name: value for name, value in part.environment.items() if login or name != "REDISCLI_AUTH"}
    command = ["redis-cli", *(["--user", "luminet"] if login else []), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_redis_runs_as_the_file_configures_it(twin: Twin) -> None:
    told = redis_cli(twin, "info", "memory") + redis_cli(twin, "info", "persistence")
    assert {f"maxmemory:{256 * 2**20}", "maxmemory_policy:noeviction", "aof_enabled:0"} <= set(told.split())


def test_redis_lets_in_the_control_plane_and_who_it_gave_a_login_and_nobody_else(twin: Twin) -> None:
    assert "NOAUTH" in redis_cli(twin, "ping", login=False)
    names = redis_cli(twin, "acl", "users").split()
    assert {"default", "luminet"} < set(names)
    assert {".".join(name.split(".")[:2]) for name in names} >= {"agent.agent-1", "agent.gateway-1"}
    for refused in (["flushall"], ["config", "get", "*"], ["shutdown"], ["acl", "load"]):
        assert "NOPERM" in redis_cli(twin, *refused), refused


def test_the_demos_traffic_runs_where_its_profile_is_asked_for(twin: Twin, customer: Customer) -> None:
    """In an installation that has organisations of its own: it makes none, has no key, and says that it waits."""
    part = twin.start("demo-traffic")
    try:
        twin.await_condition(part, "service_healthy")
        assert part.stop() == 0, part.said()
        assert "there is no key of a demo organisation" in part.said()
    finally:
        part.kill()


def test_the_application_serves_without_owning_a_table(twin: Twin) -> None:
    login = f"postgresql://luminet:{twin.secrets['POSTGRES_PASSWORD']}@127.0.0.1:{twin.ports['postgres']}/luminet"
    with psycopg.connect(login) as superuser:
        signed_in = superuser.execute(
            "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE datname = 'luminet' AND pid <> pg_backend_pid()"
        ).fetchall()
        owners = superuser.execute(
            "SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        ).fetchall()
    assert (signed_in, owners) == ([("luminet_app",)], [("luminet_owner",)])


def test_no_secret_stands_on_a_command_line_or_in_a_log(twin: Twin) -> None:
    for part in twin.parts.values():
        if part.process.poll() is None:
            family = [psutil.Process(part.process.pid), *psutil.Process(part.process.pid).children(recursive=True)]
            shown = "\n".join(word for process in family for word in process.cmdline())
            assert not [name for name, secret in twin.secrets.items() if secret in shown], part.name
        assert not [name for name, secret in twin.secrets.items() if secret in part.log.read_text()], part.name


def test_services_write_nothing_where_their_image_is_read_only(twin: Twin) -> None:
    assert list(twin.cwd.iterdir()) == []
    assert [path.name for path in (twin.place / "app").iterdir()] == ["static"]


def test_it_stops_in_reverse_order_within_its_grace_and_leaves_nothing(twin: Twin) -> None:
    """Last, because it takes from the other tests what they ask."""
    for name in reversed(twin.order()):
        part = twin.parts[name]
        code = part.stop() if part.service["restart"] != "no" else part.process.wait(0)
        assert code in GOOD_ENDS.get(name, {0}), f"{name} ended with {code}:\n{part.said()}"
    assert [part.name for part in twin.parts.values() if part.left_something()] == []
    assert all(port_is_free("127.0.0.1", port) for port in twin.ports.values())
    with pytest.raises(URLError):
        twin.get("/healthz")
