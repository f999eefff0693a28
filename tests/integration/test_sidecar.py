"""`luminet agent` beside a real engine, obeying a small control plane over a real Redis: joining, and every fault."""

import json
import os
import random
import signal
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine_agent.process.version import luminet_version
from engine_agent.sidecar.engine_child import peer_of
from tests.engines.processes import DEMO, Engine, asked, engine, state_folder
from tests.engines.snapshots import make_snapshot
from tests.fleet.control_planes import AGENT, ControlPlane, control_plane, is_listening, login_make, sidecar
from tests.support.spoiling import hit


@dataclass(slots=True)
class Site:
    """A machine with an engine in a fleet of its own."""

    plane: ControlPlane
    engine: Engine
    home: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        return "--engine-state", str(self.engine.state), "--port", "8101", "--address", "http://127.0.0.1:8101"


@pytest.fixture(scope="module")
def fleet_engine() -> Iterator[Engine]:
    with state_folder() as state:
        state.mkdir(parents=True)
        (state / "identity-secret").write_text("0123456789abcdef0123456789abcdef")
        yield from _engine(state)


def _engine(state: Path) -> Iterator[Engine]:
    with engine("--agent-id", AGENT, "--identity-secret-file", str(state / "identity-secret"), state=state) as running:
        yield running


@pytest.fixture
def site(redis_server: str, fleet_engine: Engine, tmp_path: Path) -> Iterator[Site]:
    with control_plane(redis_server) as plane:
        yield Site(plane, fleet_engine, tmp_path / "agent")


POLICY: dict[str, Any] = {"ttl_seconds": 300, "kv_dtype": "fp8", "request_kv_dtypes": ["int4"]}
ONE = make_snapshot({"one": POLICY})
TWO = make_snapshot({"one": {**POLICY, "ttl_seconds": 60}}, revisions={"one": 2})
THREE = make_snapshot({"one": {**POLICY, "ttl_seconds": 30}}, revisions={"one": 3})


def held(running: Engine) -> str:
    return str(running.admin("GET", "/snapshot").json["hash"])


def test_it_joins_pulls_what_it_is_to_hold_and_obeys_what_is_pushed(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        assert plane.acknowledged(1)["hash"] == ONE.hash
        assert held(site.engine) == ONE.hash
        plane.ready(1)
        pulls = plane.pulls

        plane.send(plane.apply_command(2, TWO, base=ONE))  # which no answer has named, so nothing else brings it

        told = plane.acknowledged(2)
        assert (told["hash"], held(site.engine)) == (TWO.hash, TWO.hash)
        assert told["engine_boot"] == site.engine.admin("GET", "/brief").json["boot"]
        assert plane.pulls == pulls, "the change was enough"
        about = plane.told("about")[-1]
        assert about["models"][0]["name"] == "demo"
        assert about["pool"]["capacity_bytes"] > 31 * 2**20
        assert (about["backend"], about["backend_version"]) == ("paged", luminet_version())
        assert set(about["kv_dtypes"]) == set(about["pool"]["block_bytes"])
        for name in ("credentials", "snapshot", "spool"):
            assert stat.S_IMODE((site.home / name).stat().st_mode) == 0o600
        health = asked(HTTPConnection("127.0.0.1", running.status_port), "GET", "/health", None, {}).json
        assert (health["agent"], health["engine"]["state"]) == (AGENT, "ready")
        assert health["held"] == {"generation": 2, "hash": TWO.hash}
        metrics = asked(HTTPConnection("127.0.0.1", running.status_port), "GET", "/metrics", None, {}).body.decode()
        assert 'luminet_sidecar_commands_total{outcome="applied"} 1.0' in metrics
        assert running.stop() == 0


def test_the_secret_by_which_gateways_are_believed_is_put_beside_the_engine(site: Site, tmp_path: Path) -> None:
    state = tmp_path / "engine"
    with sidecar(site.plane, site.home, "--engine-state", str(state)):
        site.plane.until(lambda: site.plane.heartbeats, "a heartbeat")
        secret = state / "identity-secret"
        assert secret.read_text().strip() == site.plane.identity
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert site.plane.heartbeats[-1]["engine"]["state"] == "down"


def test_whatever_is_asked_of_its_status_it_goes_on(site: Site) -> None:
    good = b"GET /health HTTP/1.1\r\nhost: x\r\naccept: */*\r\ncontent-length: 0\r\n\r\n"
    with sidecar(site.plane, site.home, *site.arguments) as running:
        site.plane.until(lambda: site.plane.heartbeats, "a first heartbeat")
        for number in range(80):
            with socket.create_connection(("127.0.0.1", running.status_port), timeout=30) as near:
                near.sendall(hit(random.Random(f"12 status {number}"), good))
                near.shutdown(socket.SHUT_WR)
                said = near.makefile("rb").read()
                assert b" 500 " not in said[:40], number
                assert b"Traceback" not in said, number
        assert said_of(running.status_port)["agent"] == AGENT
        assert running.process.poll() is None


def said_of(port: int) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_change_to_something_else_is_answered_by_pulling_the_whole(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        plane.publish(3, THREE, base=TWO)

        assert plane.acknowledged(3)["hash"] == THREE.hash
        assert held(site.engine) == THREE.hash
        assert [one["generation"] for one in plane.told("applied")] == [1, 3]


def test_a_lost_push_is_pulled_after_an_answer_has_named_it(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        plane.want(2, TWO)

        assert plane.acknowledged(2)["hash"] == TWO.hash


def test_killed_between_applying_and_acknowledging_it_acknowledges_once_it_is_back(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        plane.is_away = True
        plane.publish(2, TWO, base=ONE)
        plane.until(lambda: held(site.engine) == TWO.hash, "the engine's obedience")
        running.kill()
    assert not [one for one in plane.told("applied") if one["generation"] == 2]
    plane.is_away = False

    with sidecar(plane, site.home, *site.arguments):
        assert plane.acknowledged(2)["hash"] == TWO.hash
        assert held(site.engine) == TWO.hash


def test_without_a_control_plane_it_goes_on_with_what_it_holds_and_tells_all_of_it_later(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        running.kill()
    plane.is_away = True
    with sidecar(plane, site.home, *site.arguments) as running:
        before = len(plane.heartbeats)
        plane.until(lambda: plane.requests.count("POST /agent/v1/reports") > before, "an attempt to report")
        assert held(site.engine) == ONE.hash
        plane.is_away = False
        plane.ready(1)


@pytest.mark.parametrize("damage", [b"", b"not what was sealed", None])
def test_a_store_that_is_damaged_is_set_aside_and_pulled_anew(site: Site, damage: bytes | None) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        running.kill()
    stored = site.home / "snapshot"
    content = bytearray(stored.read_bytes())
    content[-1] ^= 1
    stored.write_bytes(bytes(content) if damage is None else damage)
    plane.want(2, TWO)
    plane.pulls = 0

    with sidecar(plane, site.home, *site.arguments):
        assert plane.acknowledged(2)["hash"] == TWO.hash
        assert plane.pulls
        assert (site.home / "snapshot.damaged").exists()


def test_what_is_forged_misaddressed_expired_replayed_older_or_corrupt_is_refused_and_told(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        plane.publish(2, TWO, base=ONE)
        plane.acknowledged(2)
        evil = make_snapshot({"evil": POLICY})

        plane.send_raw(plane.sealed(plane.apply_command(9, evil, base=TWO), signing=Ed25519PrivateKey.generate()))
        assert plane.refused("forged")
        plane.send_raw(plane.sealed(plane.apply_command(9, evil, base=TWO), key=os.urandom(32)))
        assert plane.refused("corrupt")
        plane.send(plane.apply_command(9, evil, base=TWO, agent="unit-2"))
        assert plane.refused("misaddressed")
        plane.send(plane.apply_command(9, evil, base=TWO, expires_at=plane.now() - 1))
        assert plane.refused("expired")
        plane.send(plane.apply_command(1, ONE, base=TWO))
        assert plane.refused("older")["what"] == "generation 1, 2 is held"
        once = plane.sealed(plane.command("wake", 0, {}))
        plane.send_raw(once)
        plane.send_raw(once)
        assert plane.refused("replayed")
        for nonsense in ("", "v1.a.b", "ünlesbar", 7, None, "x" * 200_000):
            plane.send_raw(nonsense)
        assert plane.refused("malformed")

        assert held(site.engine) == TWO.hash
        assert {one["hash"] for one in plane.told("applied")} == {ONE.hash, TWO.hash}


def test_messages_that_come_late_or_twice_never_bring_it_back(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        late = plane.apply_command(2, TWO, base=ONE)
        plane.publish(3, THREE, base=ONE)
        plane.send(plane.apply_command(3, THREE, base=ONE))
        plane.acknowledged(3)
        plane.send(late)

        plane.refused("older")
        assert held(site.engine) == THREE.hash


def test_a_clock_ten_minutes_off_judges_by_the_control_planes(site: Site) -> None:
    plane = site.plane
    plane.ahead_seconds = 600
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        plane.publish(2, TWO, base=ONE)

        assert abs(plane.acknowledged(2)["at"] - plane.now()) < 60
        assert not plane.told("refused")


def test_an_operation_is_done_once_and_its_receipt_is_told_again(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        plane.send(plane.operation_command("drain-1", "drain"))
        assert plane.receipt("drain-1")["ok"]
        plane.seen(lambda beat: beat["engine"]["state"] == "draining", "a heartbeat that says draining")
        plane.send(plane.operation_command("resume-1", "resume"))
        assert plane.receipt("resume-1")["ok"]

        plane.send(plane.operation_command("drain-1", "drain"))
        first, second = plane.receipts("drain-1", 2)
        assert first == second
        assert not site.engine.admin("GET", "/brief").json["is_draining"], "it was not done a second time"

        plane.send(plane.operation_command("check-1", "integrity"))
        assert plane.receipt("check-1")["result"] == {"problems": []}
        running.kill()
    with sidecar(plane, site.home, *site.arguments):
        plane.ready(1)
        plane.send(plane.operation_command("check-1", "integrity"))
        first, second = plane.receipts("check-1", 2)
        assert first == second


def test_a_token_is_rotated_and_only_the_new_one_is_used(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        before = plane.token
        plane.send(plane.operation_command("rotate-1", "rotate_token"))

        assert plane.receipt("rotate-1") == {**plane.receipt("rotate-1"), "ok": True, "result": {}}
        assert plane.token != before
        assert json.loads((site.home / "credentials").read_text())["token"] == plane.token


def test_a_purge_is_proven_before_it_is_acknowledged(site: Site) -> None:
    plane = site.plane
    policies = {"one": POLICY, "other": POLICY}
    before = plane.want(1, make_snapshot(policies))
    with sidecar(plane, site.home, *site.arguments):
        plane.ready(1)
        plane.publish(2, make_snapshot(policies, epochs={"other": 2}), base=before)
        plane.acknowledged(2)

        kinds = [(one.kind, one.told) for one in plane.reports if one.kind in ("purged", "applied")]
        proof = next(told for kind, told in kinds if kind == "purged" and told["epoch"] == 2)
        assert proof["namespace"] == "other"
        places = [place for place, (kind, told) in enumerate(kinds) if told is proof or told.get("generation") == 2]
        assert [kinds[place][0] for place in places] == ["purged", "applied"]


def test_what_a_pin_keeps_is_fetched_and_handed_over(site: Site) -> None:
    plane = site.plane
    plane.pins["greeting"] = {"kind": "prompt", "content": "What does the module json do? " * 8}
    pinned = make_snapshot({"one": {**POLICY, "pin_share": 0.5}}, pins={"greeting": "one"})
    plane.want(1, pinned)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)

        def state() -> bool:
            pins = site.engine.admin("GET", "/pins").json["pins"]
            return bool(pins) and pins[0]["state"] == "active"

        plane.until(state, "the pin's blocks")
        assert plane.requests.count("GET /agent/v1/pins/greeting") == 1


def test_a_snapshot_that_cannot_be_obeyed_is_told_as_rejected_and_changes_nothing(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        bad = make_snapshot({"one": {**POLICY, "kv_dtype": "float7"}})
        plane.publish(2, bad, base=ONE)

        told = dict(plane.until(lambda: plane.told("rejected"), "the rejection")[0])
        assert (told["generation"], told["hash"]) == (2, bad.hash)
        assert held(site.engine) == ONE.hash
        plane.publish(3, THREE, base=bad)
        assert plane.acknowledged(3)["hash"] == THREE.hash


def test_the_queue_is_read_again_after_redis_has_lost_everything(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.acknowledged(1)
        with redis.Redis.from_url(plane.redis_url) as client:
            client.flushall()
            client.execute_command("ACL DELUSER", f"agent.{AGENT}")
        login_make(plane.redis_url)
        plane.publish(2, TWO, base=ONE)

        assert plane.acknowledged(2)["hash"] == TWO.hash


def test_a_broker_that_closes_its_connections_ends_nobody(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        with redis.Redis.from_url(plane.redis_url) as client:
            for _ in range(5):
                plane.until(lambda: client.execute_command("CLIENT", "KILL", "USER", f"agent.{AGENT}"), "its login")
        plane.send(plane.apply_command(2, TWO, base=ONE))

        assert plane.acknowledged(2)["hash"] == TWO.hash
        assert running.process.poll() is None


def test_an_engine_of_its_own_is_started_brought_back_and_ended(redis_server: str, tmp_path: Path) -> None:
    with control_plane(redis_server) as plane, state_folder() as home:
        plane.want(1, ONE)
        own = ("--model", str(DEMO), "--name", AGENT, "--port", "0", "--pool", "32MiB", "--device", "cpu")
        with sidecar(plane, home, *own) as running:
            boot = plane.ready(1)["engine"]["boot"]
            socket = home / "engine" / "admin.sock"
            pid = peer_of(socket)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            plane.seen(lambda beat: beat["engine"]["state"] == "down", "a heartbeat that says that the engine is down")
            plane.publish(2, TWO, base=ONE)
            back = plane.ready(2)["engine"]["boot"]
            assert back != boot
            running.kill()
        assert is_listening(socket), "the engine goes on without its sidecar"
        with sidecar(plane, home, *own) as running:
            again = plane.ready(2)
            assert again["engine"]["boot"] == back
            assert running.stop() == 0
        assert not is_listening(socket)


def test_who_may_not_join_ends_with_one_line(redis_server: str, tmp_path: Path) -> None:
    with control_plane(redis_server) as plane:
        plane.token, state = "lat_another", tmp_path / "engine"
        with sidecar(plane, tmp_path / "home", "--engine-state", str(state), "--token", "ljt_wrong") as running:
            assert running.process.wait(60) == 1
            assert "unknown_token" in running.log.read_text()
            assert "Traceback" not in running.log.read_text()


def test_who_is_revoked_stops_and_says_so_whatever_token_it_was_started_with(site: Site) -> None:
    plane = site.plane
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.acknowledged(1)
        running.kill()
    plane.is_revoked = True
    plane.requests.clear()
    with sidecar(plane, site.home, *site.arguments) as running:
        plane.until(lambda: "was revoked" in running.log.read_text(), "a line about it")
        assert running.stop() == 0
    assert set(plane.requests) == {"POST /agent/v1/credentials"}
    assert (site.home / "snapshot").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--model", "/nope"), "/nope: is no folder of a Hugging Face model"),
        (("--model", str(DEMO), "--poool", "1GiB"), "--poool"),
        (("--model", str(DEMO), "--policy", "policy.toml"), "--policy"),
    ],
)
def test_an_engine_that_could_never_start_costs_no_join_token(
    redis_server: str, tmp_path: Path, wrong: tuple[str, ...], said: str
) -> None:
    with control_plane(redis_server) as plane, sidecar(plane, tmp_path / "home", *wrong) as running:
        assert running.process.wait(60) == 1
        assert said in running.log.read_text()
        assert not plane.requests


def test_a_disk_without_room_is_said_and_what_waits_is_told_when_there_is_room(site: Site) -> None:
    plane, spool = site.plane, site.home / "spool"
    plane.want(1, ONE)
    with sidecar(plane, site.home, *site.arguments):
        plane.ready(1)
        aside = spool.rename(spool.with_name("spool.aside"))
        spool.symlink_to("/dev/full")
        plane.publish(2, TWO, base=ONE)

        beat = plane.seen(lambda beat: beat["engine"]["why"].startswith("cannot write"), "a heartbeat that says it")
        assert beat["engine"]["state"] == "ready"
        assert "No space left on device" in beat["engine"]["why"]
        assert not [one for one in plane.told("applied") if one["generation"] == 2]
        aside.rename(spool)

        assert plane.acknowledged(2)["hash"] == TWO.hash
        plane.seen(lambda beat: not beat["engine"]["why"], "a heartbeat that says nothing of it")


def test_nobody_is_joined_over_plain_http(redis_server: str, tmp_path: Path) -> None:
    with control_plane(redis_server) as plane:
        state = str(tmp_path / "engine")
        with sidecar(plane, tmp_path / "home", "--engine-state", state, "--join", "http://192.0.2.1:8000") as running:
            assert running.process.wait(60) == 1
            assert "--plain-http-host 192.0.2.1" in running.log.read_text()
