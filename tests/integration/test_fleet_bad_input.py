"""Whoever speaks to the fleet's door or writes to its broker without being entitled to is refused: one log line, one
count, and nothing about our insides."""

import base64
import http.client
import json
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from engine_agent.contracts.wire import MOST_BATCH_BYTES, Batch, Report, batch_encode
from tests.fleet.fleets import Fleet, fleet_running
from tests.support.waiting import wait_until

ABOUT = {"backend": "simulated", "version": "0.1.0"}
Answered = tuple[int, Any]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        yield running


@pytest.fixture
def agent(fleet: Fleet) -> dict[str, Any]:
    """The credentials of an agent that has enrolled."""
    return enrolled(fleet)


def enrolled(fleet: Fleet) -> dict[str, Any]:
    status, told = post(fleet, "enrol", joining(fleet.tokens["join"]))
    assert status == 201, told
    return dict(told)


def joining(token: str, **more: Any) -> dict[str, Any]:
    return {"token": token, "kind": "engine", "name": None, "about": ABOUT, **more}


def asked(fleet: Fleet, method: str, path: str, body: bytes | None = None, token: str | None = None) -> Answered:
    connection = http.client.HTTPConnection(urlsplit(fleet.web).netloc, timeout=60)
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, f"/agent/v1/{path}", body, headers)
        answer = connection.getresponse()
        said = answer.read()
        return answer.status, json.loads(said) if said else None
    finally:
        connection.close()


def post(fleet: Fleet, path: str, told: Any, token: str | None = None) -> Answered:
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    return asked(fleet, "POST", path, body, token)


def reports(*told: Report, first: int = 1) -> bytes:
    return batch_encode(Batch(sent_at=1.0, spool="spool-1", first=first, reports=told, heartbeat=None))


def refused_count(fleet: Fleet) -> float:
    """Of all reasons, as the metrics say it."""
    connection = http.client.HTTPConnection(urlsplit(fleet.web).netloc, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    told = [line for line in lines if line.startswith("luminet_agent_requests_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in told if 'outcome="ok"' not in line)


def refused_lines(fleet: Fleet) -> list[str]:
    return [line for line in fleet.parts["web"].said.splitlines() if "agent refused" in line]


def is_refused(fleet: Fleet, answer: Answered, *, status: int, code: str, lines: int, count: float) -> None:
    """As expected, with one more log line and one more count than before, and nothing of our insides told."""
    found, told = answer
    assert (found, told["error"]["code"]) == (status, code)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"code", "message"}
    assert "Traceback" not in json.dumps(told)
    wait_until(lambda: len(refused_lines(fleet)) == lines + 1, "one log line")
    assert refused_count(fleet) == count + 1


WRONG: dict[str, tuple[int, str, Any]] = {
    "a token that nobody has": (401, "unknown_token", ("POST", "reports", reports(), "lat_" + "x" * 40)),
    "no token": (401, "unknown_token", ("POST", "reports", reports(), None)),
    "a join token that nobody made": (401, "unknown_token", ("POST", "enrol", json.dumps(joining("ljt_x")).encode())),
}


@pytest.mark.parametrize("what", WRONG)
def test_whoever_is_nobody_is_refused(fleet: Fleet, what: str) -> None:
    status, code, request = WRONG[what]
    lines, count = len(refused_lines(fleet)), refused_count(fleet)
    is_refused(fleet, asked(fleet, *request), status=status, code=code, lines=lines, count=count)


def test_a_revoked_agent_is_told_so_within_a_second_and_kept_out(fleet: Fleet, agent: dict[str, Any]) -> None:
    assert post(fleet, "reports", reports(), agent["token"])[0] == 200
    fleet.ask("DELETE", f"/fleet/agents/{agent['agent']}")
    wait_until(lambda: post(fleet, "reports", reports(), agent["token"])[0] == 403, "the door to notice")
    lines, count = len(refused_lines(fleet)), refused_count(fleet)
    answer = post(fleet, "reports", reports(), agent["token"])
    is_refused(fleet, answer, status=403, code="revoked", lines=lines, count=count)


MALFORMED = {
    "no JSON": b"{",
    "no object": b"[]",
    "another version": reports().replace(b'"version":1', b'"version":2'),
    "a field nobody knows": reports().replace(b'{"first"', b'{"extra":1,"first"'),
    "a report of no known kind": reports(Report("applied", {})).replace(b'"applied"', b'"conquered"'),
    "an acknowledgement without a hash": reports(Report("applied", {"generation": 1, "at": 1.0})),
    "a number that is none": reports().replace(b'"sent_at":1.0', b'"sent_at":NaN'),
    "not even text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_reports_change_nothing(fleet: Fleet, agent: dict[str, Any], what: str) -> None:
    lines, count = len(refused_lines(fleet)), refused_count(fleet)
    answer = post(fleet, "reports", MALFORMED[what], agent["token"])
    is_refused(fleet, answer, status=400, code="malformed", lines=lines, count=count)
    row = fleet.rows("SELECT spool, spool_number, applied_hash FROM fleet_agent WHERE id = %s", agent["agent"])
    assert row == [("", 0, "")]


def test_oversized_reports_are_not_even_read(fleet: Fleet, agent: dict[str, Any]) -> None:
    lines, count = len(refused_lines(fleet)), refused_count(fleet)
    answer = post(fleet, "reports", b" " * (MOST_BATCH_BYTES + 1), agent["token"])
    is_refused(fleet, answer, status=413, code="too_large", lines=lines, count=count)


@pytest.mark.parametrize("path", ["pins/00000000-0000-0000-0000-000000000000", "pins/1", "pins/..%2f", "agents/1"])
def test_what_is_not_there_is_not_found(fleet: Fleet, agent: dict[str, Any], path: str) -> None:
    lines, count = len(refused_lines(fleet)), refused_count(fleet)
    answer = asked(fleet, "GET", path, None, agent["token"])
    is_refused(fleet, answer, status=404, code="not_found", lines=lines, count=count)


def test_receipts_for_operations_of_others_count_nowhere(fleet: Fleet, agent: dict[str, Any]) -> None:
    other = enrolled(fleet)
    operation = fleet.ask("POST", f"/fleet/agents/{other['agent']}/integrity")["operation"]
    told = Report("receipt", {"operation": operation, "ok": True, "at": 1.0, "result": {}})
    status, answer = post(fleet, "reports", reports(told), agent["token"])
    assert (status, answer["acknowledged"]) == (200, 1)  # taken, or it would come for ever; and believed by nobody
    assert fleet.ask("GET", f"/operations/{operation}")["state"] == "running"


def test_a_state_that_it_was_never_to_hold_ends_nothing_and_shows(fleet: Fleet, agent: dict[str, Any]) -> None:
    told = {"generation": 1, "hash": "ab" * 32, "at": 1.0, "engine_boot": "b", "seconds": 0.1}
    assert post(fleet, "reports", reports(Report("applied", told)), agent["token"])[0] == 200
    shown = fleet.ask("GET", f"/fleet/agents/{agent['agent']}")
    assert not shown["in_sync"]


# The broker


def login(fleet: Fleet, credentials: dict[str, Any]) -> "redis.Redis":
    return redis.Redis.from_url(credentials["broker"]["url"])


@pytest.mark.parametrize(
    "deed",
    [
        ("LPUSH", "agent.{other}:agent.{other}", "forged"),
        ("BRPOP", "agent.{other}:agent.{other}", "1"),
        ("LRANGE", "agent.{other}:agent.{other}", "0", "-1"),
        ("DEL", "agent.{other}:agent.{other}"),
        ("GET", "luminet:beat-alive"),
        ("LRANGE", "control", "0", "-1"),
        ("LPUSH", "control", "forged"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("ACL", "SETUSER", "agent.{other}", "on", "nopass"),
        ("CLIENT", "LIST"),
        ("PUBLISH", "luminet:live", "forged"),
        ("EVAL", "return redis.call('GET', 'control')", "0"),
        ("MONITOR",),
        ("SHUTDOWN",),
    ],
    ids=lambda deed: " ".join(deed[:2]),
)
def test_an_agents_login_reaches_its_own_keys_only(fleet: Fleet, agent: dict[str, Any], deed: tuple[str, ...]) -> None:
    other = enrolled(fleet)
    with login(fleet, agent) as own, pytest.raises(redis.exceptions.NoPermissionError):
        own.execute_command(*(part.format(other=other["agent"]) for part in deed))


def test_nobody_logs_in_as_another_agent(fleet: Fleet, agent: dict[str, Any]) -> None:
    other = enrolled(fleet)
    password = urlsplit(agent["broker"]["url"]).password
    posing = other["broker"]["url"].replace(str(urlsplit(other["broker"]["url"]).password), str(password))
    with redis.Redis.from_url(posing) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()


def test_a_revoked_agent_is_out_of_the_broker_too(fleet: Fleet, agent: dict[str, Any]) -> None:
    with login(fleet, agent) as client:
        assert client.llen(queue_of(agent["agent"])) in (0, 1)  # what it is to hold may be on its way already
        fleet.ask("DELETE", f"/fleet/agents/{agent['agent']}")
        with pytest.raises(redis.exceptions.RedisError):
            wait_until(lambda: client.llen(f"agent.{agent['agent']}:x") and None, "to be thrown out")
    with login(fleet, agent) as again, pytest.raises(redis.exceptions.AuthenticationError):
        again.ping()


FORGED = {
    "nonsense": "nonsense",
    "well-formed, and signed by nobody": "v1." + "A" * 80 + "." + "A" * 86,
}


def test_what_somebody_else_writes_into_a_queue_is_obeyed_by_nobody_and_reported(fleet: Fleet) -> None:
    """Whoever could write there, by the broker's own password: neither made up, nor taken from another's queue."""
    fleet.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})  # without a namespace a policy is news to nobody
    part = fleet.simulate(2, prefix="target")
    wait_until(lambda: fleet.in_sync() >= 2, "two agents")
    with fleet.broker() as broker:
        part.pause()
        fleet.ask("PUT", "/policy", {"policy": {"ttl_seconds": 777}})
        message = wait_until(lambda: broker.lindex(queue_of("target-0001"), 0), "a message for the first")
        wait_until(lambda: broker.llen(queue_of("target-0002")), "a message for the second")
        for sealed in FORGED.values():
            broker.lpush(queue_of("target-0002"), resealed(message, sealed))
        broker.lpush(queue_of("target-0002"), message)
        part.resume()
    wait_until(lambda: sum(refusals(fleet, "target-0002").values()) >= 3, "three refusals")
    assert set(refusals(fleet, "target-0002")) <= {"forged", "malformed"}
    assert refusals(fleet, "target-0001") == {}
    wait_until(lambda: fleet.in_sync() >= 2, "both at what the control plane says")


def queue_of(agent: str) -> str:
    return f"agent.{agent}:agent.{agent}"


def resealed(message: bytes, sealed: str) -> bytes:
    """The same Celery message with another content."""
    told = json.loads(message)
    body = json.loads(base64.b64decode(told["body"]))
    body[0] = [sealed]
    told["body"] = base64.b64encode(json.dumps(body).encode()).decode()
    told["properties"]["delivery_tag"] = secrets.token_hex(16)
    return json.dumps(told).encode()


def refusals(fleet: Fleet, agent: str) -> dict[str, int]:
    rows = fleet.rows("SELECT reason, count FROM fleet_refusedcommands WHERE agent_id = %s", agent)
    return {reason: int(number) for reason, number in rows}
