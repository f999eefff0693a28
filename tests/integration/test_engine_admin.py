"""The admin face of a real engine process, over its Unix socket."""

import base64
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import pytest

from engine_agent.contracts.identity import HEADER, Identity, sign
from engine_agent.contracts.protocol import (
    Snapshot,
    change_between,
    change_encode,
    policy_hash,
    snapshot_build,
    snapshot_encode,
)
from tests.engines.processes import Engine, UnixConnection, asked, engine, state_folder
from tests.support.waiting import wait_until

SECRET = b"the-secret-that-gateways-and-engines-share"
PROMPT = list(range(100, 180))  # five blocks
CACHING = {"ttl_seconds": 600, "pin_share": 0.2}


@pytest.fixture(scope="module")
def alone() -> Iterator[Engine]:
    with state_folder() as state:
        state.mkdir()
        policy = state.parent / "policy.toml"
        policy.write_text("ttl_seconds = 600\npin_share = 0.2\n")
        with engine("--policy", str(policy), state=state) as running:
            yield running


@pytest.fixture(scope="module")
def fleet() -> Iterator[Engine]:
    with state_folder() as state:
        state.mkdir()
        secret = state.parent / "identity-secret"
        secret.write_bytes(SECRET)
        options = ("--identity-secret-file", str(secret), "--agent-id", "agent-1")
        with engine(*options, state=state) as running:
            yield running


def namespace(policy: dict[str, Any], *, epoch: int = 0, revision: int = 1, org: str = "7") -> dict[str, Any]:
    key = base64.b64encode(bytes([epoch]) * 32).decode()
    slug, said = "default", policy_hash(policy)
    return {"org": org, "slug": slug, "epoch": epoch, "key": key, "revision": revision, "policy": said}


def snapshot(
    policy: dict[str, Any], *, epoch: int = 0, revision: int = 1, more: dict[str, dict[str, Any]] | None = None
) -> Snapshot:
    entries = {
        "org/7": {"org": "7", "slug": "acme", "state": "active", "limits": {}},
        "ns/12": namespace(policy, epoch=epoch, revision=revision),
        **(more or {}),
    }
    return snapshot_build("engine", entries, {policy_hash(policy): policy})


def identity(**fields: Any) -> str:
    known = Identity(
        organisation_id="7",
        organisation="acme",
        namespace_id="12",
        namespace="default",
        scope="infer",
        policy_revision=1,
        request_id=f"r-{time.monotonic_ns()}",
        attempt=1,
        kind="customer",
        deadline=None,
        issued_at=time.time(),
        expires_at=time.time() + 30,
        audience="agent-1",
    )
    return sign(replace(known, **fields), SECRET)


# For anybody


def test_health_is_a_token_really_generated(alone: Engine) -> None:
    before = alone.admin("GET", "/stats").json["generated_tokens"]
    answer = alone.admin("GET", "/health")
    assert answer.status == 200
    assert answer.json["ok"] is True
    assert 0 < answer.json["seconds"] < 60
    assert alone.admin("GET", "/stats").json["generated_tokens"] == before + 1


def test_the_socket_is_its_owners_alone(alone: Engine) -> None:
    assert (alone.state / "admin.sock").stat().st_mode & 0o777 == 0o600


def test_stats_say_who_it_is_and_what_it_holds(alone: Engine) -> None:
    alone.complete(PROMPT)
    assert alone.complete(PROMPT).status == 200
    stats = alone.admin("GET", "/stats").json
    assert stats["is_alone"] is True
    assert stats["model"]["name"] == "demo"
    assert "fp8" in stats["model"]["kv_dtypes"]
    assert stats["journal"]["boot"] == stats["boot"]
    assert stats["pool"]["capacity_bytes"] <= 32 * 2**20
    assert [one["namespace"] for one in stats["namespaces"]] == ["default"]


def test_the_books_are_sound(alone: Engine) -> None:
    assert alone.complete(PROMPT).status == 200
    assert alone.admin("POST", "/integrity").json == {"problems": []}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_path"),
        ("DELETE", "/stats", 405, "unknown_method"),
        ("GET", "/journal?since=-1", 400, "invalid_value"),
        ("GET", "/journal?since=1e3", 400, "invalid_value"),
        ("GET", "/journal?limit=0", 400, "invalid_value"),
        ("GET", "/journal?limit=10001", 400, "invalid_value"),
        ("GET", "/journal?boot=unknown", 404, "unknown"),
        ("GET", "/journal?boot=..%2F..", 404, "unknown"),
        ("GET", f"/events?since={'9' * 30}", 400, "invalid_value"),
        ("GET", "/receipts?after=x", 400, "invalid_value"),
        ("DELETE", "/pins/a..b", 400, "invalid_value"),
        ("DELETE", "/pins/nobodys", 404, "unknown"),
    ],
)
def test_what_makes_no_sense_is_a_small_error(alone: Engine, method: str, path: str, status: int, code: str) -> None:
    answer = alone.admin(method, path)
    assert (answer.status, answer.error) == (status, code)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null", b"{" * 100_000, b'{"boot": 1, "upto": 1}', b"{}"])
def test_a_body_that_makes_no_sense_is_refused(alone: Engine, body: bytes) -> None:
    assert alone.admin("POST", "/journal/cut", raw=body).status == 400
    assert alone.admin("POST", "/pins", raw=body).status == 400


def test_a_body_too_large_is_refused(alone: Engine) -> None:
    answer = alone.admin("POST", "/journal/cut", raw=b" " * (33 * 2**20))
    assert (answer.status, answer.error) == (413, "too_large")


# The journal


def test_what_a_response_said_is_in_the_journal(alone: Engine) -> None:
    since = alone.admin("GET", "/journal?limit=10000").json["last"]
    cold = alone.complete([7, *PROMPT], cache_salt="journal")
    hit = alone.complete([7, *PROMPT], cache_salt="journal")
    wait_until(lambda: alone.admin("GET", f"/journal?since={since}").json["last"] == since + 4)
    page = alone.admin("GET", f"/journal?since={since}").json
    kinds = [(entry["type"], entry["request_id"]) for entry in page["entries"]]
    ids = [answer.headers["x-request-id"] for answer in (cold, hit)]
    assert sorted(kinds) == sorted((kind, one) for one in ids for kind in ("opened", "closed"))
    for answer in (cold, hit):
        opened = next(
            one
            for one in page["entries"]
            if (one["type"], one["request_id"]) == ("opened", answer.headers["x-request-id"])
        )
        said = {
            name: answer.headers[f"x-luminet-{name.replace('_', '-')}"] for name in ("prompt_tokens", "cached_tokens")
        }
        assert said == {name: str(opened[name]) for name in said}
        assert opened["miss_reason"] == answer.headers["x-luminet-miss-reason"]
        assert opened["prompt_tokens"] == opened["cached_tokens"] + sum(opened["missed"].values())
    assert page["lost"] == []


def test_pages_of_the_journal_follow_each_other(alone: Engine) -> None:
    for number in range(3):
        alone.complete([number + 1, *PROMPT])
    whole = alone.admin("GET", "/journal?limit=10000").json
    found: list[int] = []
    last = 0
    while (page := alone.admin("GET", f"/journal?since={last}&limit=2").json)["entries"]:
        found += [entry["sequence"] for entry in page["entries"]]
        last = page["last"]
    assert found[: len(whole["entries"])] == [entry["sequence"] for entry in whole["entries"]]


def test_the_journal_is_cut_where_its_reader_says(alone: Engine) -> None:
    alone.complete(PROMPT)
    boot = alone.admin("GET", "/stats").json["boot"]
    (one,) = [one for one in alone.admin("GET", "/journal/boots").json["boots"] if one["is_current"]]
    assert one["boot"] == boot
    assert alone.admin("POST", "/journal/cut", {"boot": boot, "upto": 1}).json == {"freed_bytes": 0}
    answer = alone.admin("POST", "/journal/cut", {"boot": boot, "upto": 10**9})
    assert (answer.status, answer.error) == (400, "bad_cut")
    assert alone.admin("POST", "/journal/cut", {"boot": "other", "upto": 1}).status == 404


# Pins and purges of an engine alone


def test_a_pin_is_computed_and_then_hit(alone: Engine) -> None:
    tokens = list(range(200, 264))
    since = alone.admin("GET", "/journal?limit=10000").json["last"]
    pin_id = alone.admin("POST", "/pins", {"name": "support", "token_ids": tokens}).json["id"]
    wait_until(lambda: _pin(alone, pin_id)["resident_blocks"] == 4)
    assert (_pin(alone, pin_id)["state"], _pin(alone, pin_id)["name"]) == ("active", "support")
    answer = alone.complete([*tokens, 5, 6, 7])
    assert answer.headers["x-luminet-cached-tokens"] == "64"
    warmed = alone.admin("GET", f"/journal?since={since}").json["entries"][0]
    assert (warmed["type"], warmed["kind"], warmed["namespace_id"]) == ("opened", "pin", "default")
    assert (warmed["prompt_tokens"], warmed["cached_tokens"]) == (64, 0)
    assert alone.admin("DELETE", f"/pins/{pin_id}").status == 204
    assert _pin(alone, pin_id) == {}
    assert alone.admin("DELETE", f"/pins/{pin_id}").status == 404


def test_the_same_pin_twice_is_one(alone: Engine) -> None:
    wish = {"name": "twice", "prompt": "The module json", "expires_at": "2099-01-01T00:00:00Z"}
    first, second = (alone.admin("POST", "/pins", wish).json["id"] for _ in range(2))
    assert first == second
    alone.admin("DELETE", f"/pins/{first}")


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({}, "name"),
        ({"name": "a"}, "content"),
        ({"name": "a", "prompt": "x", "more": 1}, "more"),
        ({"name": "a", "token_ids": [10**6]}, "token_ids"),
        ({"name": "a", "messages": [{"role": "nobody", "content": 1}]}, "messages"),
    ],
)
def test_a_pin_that_cannot_be_is_refused_by_field(alone: Engine, wish: dict[str, Any], field: str) -> None:
    answer = alone.admin("POST", "/pins", wish)
    assert answer.status == 400
    assert answer.json["error"]["field"] == field
    assert alone.admin("GET", "/pins").json["pins"] == []


def test_after_a_purge_nothing_matches_and_a_receipt_proves_it(alone: Engine) -> None:
    prompt = [9, 9, *PROMPT]
    alone.complete(prompt)
    assert alone.complete(prompt).headers["x-luminet-cached-tokens"] == "80"
    known = alone.admin("GET", "/receipts").json["receipts"]
    answer = alone.admin("POST", "/purge")
    assert answer.status == 202
    missed = alone.complete(prompt)
    assert missed.headers["x-luminet-cached-tokens"] == "0"
    assert missed.headers["x-luminet-miss-reason"] == "purged"
    receipts = alone.admin("GET", "/receipts").json["receipts"]
    assert len(receipts) == len(known) + 1
    assert receipts[-1]["epoch"] == answer.json["epoch"]
    assert receipts[-1]["blocks"] >= 5
    number = receipts[-1]["number"]
    boot = alone.admin("GET", "/receipts").json["boot"]
    for other in ("", "&boot=another"):  # what was reached there says nothing of here
        assert alone.admin("GET", f"/receipts?after={number}{other}").json["receipts"] == receipts
    beyond = alone.admin("GET", f"/receipts?boot={boot}&after={number + 1}")
    assert (beyond.status, beyond.error) == (400, "bad_receipt")
    assert alone.admin("GET", f"/receipts?boot={boot}&after={number - 1}").json["receipts"] == receipts[-1:]
    assert alone.admin("GET", f"/receipts?boot={boot}&after={number}").json["receipts"] == []


def _pin(running: Engine, pin_id: str) -> dict[str, Any]:
    return next((one for one in running.admin("GET", "/pins").json["pins"] if one["id"] == pin_id), {})


def test_an_engine_alone_takes_no_snapshot(alone: Engine) -> None:
    answer = alone.admin("POST", "/apply", raw=snapshot_encode(snapshot(CACHING)))
    assert (answer.status, answer.error) == (409, "alone")


def test_a_drained_engine_refuses_until_it_is_resumed(alone: Engine) -> None:
    assert alone.admin("POST", "/drain").json == {"is_draining": True, "left": 0}
    refused = alone.complete(PROMPT)
    assert refused.status == 503
    assert "retry-after" in refused.headers
    assert not [name for name in refused.headers if name.startswith("x-luminet")]
    assert alone.admin("POST", "/resume").json["is_draining"] is False
    assert alone.complete(PROMPT).status == 200


def test_events_go_on_where_the_reader_stopped(alone: Engine) -> None:
    boot = alone.admin("GET", "/stats").json["boot"]
    start = alone.admin("GET", "/events").json
    assert start["boot"] == boot
    assert "snapshot" in start
    alone.complete([11, *PROMPT])
    events = alone.admin("GET", f"/events?boot={boot}&since={start['number']}").json["events"]
    assert [event["kind"] for event in events][:1] == ["stored"]
    assert events[0]["number"] == start["number"] + 1


# In a fleet


def test_a_fleets_engine_serves_what_its_snapshot_has_and_nobody_else(fleet: Engine) -> None:
    told = snapshot(CACHING, revision=7)
    assert fleet.admin("POST", "/apply", raw=snapshot_encode(told)).json == {"hash": told.hash}
    assert fleet.admin("GET", "/snapshot").json == {"hash": told.hash}
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": 2}
    answer = fleet.ask("POST", "/v1/completions", body, **{HEADER: identity()})
    assert answer.status == 200
    assert answer.headers["x-luminet-policy-revision"] == "7"
    assert answer.headers["x-luminet-agent"] == "agent-1"
    assert fleet.ask("POST", "/v1/completions", body).status == 401
    stranger = fleet.ask("POST", "/v1/completions", body, **{HEADER: identity(namespace_id="13")})
    assert stranger.status == 503
    assert stranger.json["error"]["code"] == "unknown_namespace"
    since = fleet.admin("GET", "/journal?limit=10000").json["last"]
    mistaken = fleet.ask("POST", "/v1/completions", body, **{HEADER: identity(organisation_id="8")})
    assert (mistaken.status, mistaken.json["error"]["code"]) == (403, "wrong_organisation")
    assert fleet.admin("GET", f"/journal?since={since}").json["entries"] == []


def test_a_change_leads_from_the_snapshot_that_is_here(fleet: Engine) -> None:
    before, after = snapshot(CACHING), snapshot({**CACHING, "ttl_seconds": 60}, revision=2)
    fleet.admin("POST", "/apply", raw=snapshot_encode(before))
    change = change_encode(change_between(before, after))
    assert fleet.admin("POST", "/apply", raw=change).json == {"hash": after.hash}
    again = fleet.admin("POST", "/apply", raw=change)
    assert (again.status, again.error) == (409, "hash_mismatch")
    assert again.json["error"]["expected"] == before.hash or again.json["error"]["found"] == after.hash
    assert fleet.admin("GET", "/snapshot").json == {"hash": after.hash}


@pytest.mark.parametrize(
    ("policy", "entry"),
    [
        ({"ttl_seconds": -1}, "ns/12.policy"),
        ({"kv_dtype": "fp3"}, "ns/12.policy.kv_dtype"),
    ],
)
def test_a_snapshot_that_cannot_be_obeyed_changes_nothing(fleet: Engine, policy: dict[str, Any], entry: str) -> None:
    good = snapshot(CACHING)
    fleet.admin("POST", "/apply", raw=snapshot_encode(good))
    answer = fleet.admin("POST", "/apply", raw=snapshot_encode(snapshot(policy)))
    assert (answer.status, answer.error) == (422, "rejected")
    assert answer.json["error"]["entry"] == entry
    assert fleet.admin("GET", "/snapshot").json == {"hash": good.hash}


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[" * 100_000, b'{"format": 1, "kind": "engine"}'])
def test_what_is_no_snapshot_is_refused(fleet: Engine, body: bytes) -> None:
    answer = fleet.admin("POST", "/apply", raw=body)
    assert (answer.status, answer.error) == (400, "malformed")


def test_a_gateways_snapshot_is_not_for_an_engine(fleet: Engine) -> None:
    answer = fleet.admin("POST", "/apply", raw=snapshot_encode(snapshot_build("gateway", {}, {})))
    assert (answer.status, answer.error) == (422, "rejected")


def test_a_pin_of_a_snapshot_waits_for_its_content(fleet: Engine) -> None:
    entry = {
        "org": "7",
        "ns": "12",
        "name": "head",
        "model": "demo",
        "kind": "token_ids",
        "bytes": 320,
        "expires_at": None,
    }
    fleet.admin("POST", "/apply", raw=snapshot_encode(snapshot(CACHING, more={"pin/5": entry})))
    assert _pin(fleet, "5")["state"] == "content_missing"
    tokens = list(range(300, 380))
    assert fleet.admin("PUT", "/pins/5/content", {"token_ids": tokens}).json == {"id": "5", "tokens": 80}
    wait_until(lambda: _pin(fleet, "5")["resident_blocks"] == 5)
    assert fleet.admin("PUT", "/pins/6/content", {"token_ids": tokens}).status == 400


@pytest.mark.parametrize(("method", "path"), [("POST", "/purge"), ("POST", "/pins"), ("DELETE", "/pins/5")])
def test_what_a_control_plane_decides_is_not_decided_here(fleet: Engine, method: str, path: str) -> None:
    answer = fleet.admin(method, path, {"name": "a", "prompt": "x"} if path == "/pins" else None)
    assert (answer.status, answer.error) == (409, "in_a_fleet")


def test_a_new_epoch_is_a_purge_with_a_receipt(fleet: Engine) -> None:
    fleet.admin("POST", "/apply", raw=snapshot_encode(snapshot(CACHING)))
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": 2}
    assert fleet.ask("POST", "/v1/completions", body, **{HEADER: identity()}).status == 200
    (told,) = fleet.admin("GET", "/stats").json["namespaces"]
    epoch = told["epoch"] + 1
    fleet.admin("POST", "/apply", raw=snapshot_encode(snapshot(CACHING, epoch=epoch)))
    receipts = fleet.admin("GET", "/receipts").json["receipts"]
    assert [receipt["epoch"] for receipt in receipts if receipt["namespace"] == "12"][-1] == epoch


# On loopback


def test_on_loopback_the_admin_face_wants_its_token() -> None:
    with state_folder() as state, engine("--admin-port", "0", state=state) as running:
        port = int(running.said[1].rsplit(":", 1)[1])
        token = (state / "admin-token").read_text().strip()

        def health(value: str) -> int:
            headers = {"authorization": value} if value else {}
            return asked(HTTPConnection("127.0.0.1", port, timeout=60), "GET", "/health", None, headers).status

        assert health(f"Bearer {token}") == 200
        for wrong in ("", "Bearer ", f"Bearer {token}x", token, f"Basic {token}", f"Bearer {running.key}"):
            assert health(wrong) == 401
        assert (state / "admin-token").stat().st_mode & 0o777 == 0o600
        assert not (state / "admin.sock").exists()


def test_many_who_ask_for_health_at_once_share_a_token(alone: Engine) -> None:
    before = alone.admin("GET", "/stats").json["generated_tokens"]
    connections = [UnixConnection(alone.state / "admin.sock") for _ in range(20)]
    for connection in connections:
        connection.request("GET", "/health")
    statuses = []
    for connection in connections:
        answer = connection.getresponse()
        statuses.append(answer.status)
        answer.read()
        connection.close()
    assert statuses == [200] * 20
    assert alone.admin("GET", "/stats").json["generated_tokens"] <= before + 20
    assert os.path.exists(alone.state / "admin.sock")
