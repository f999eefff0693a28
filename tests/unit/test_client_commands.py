"""Every command against answers that are not those of a control plane: a sentence and status 1, never a traceback."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.client import reading, rest
from controlplane.client.rest import Answer, Rest
from controlplane.client.shapes import Unexpected, shaped
from tests.servers.misbehaving import Reply, Server, misbehaving
from tests.support.luminet_command import luminet
from tests.support.ports import free_port

PLACES = {"namespace": "acme/chat", "pins": "acme/chat", "operation": "some-id", "orgs": "", "audit": "", "groups": ""}
PLACES |= {"agents": "", "join-tokens": "", "rollouts": "", "quality": "", "agent": "agent-1", "rollout": "some-id"}
PLACES |= {"prices": "", "alerts": "", "alert-rules": ""}
NOUNS = [f"get {noun} {PLACES.get(noun, 'acme')}".split() for noun in reading.NOUNS]
WAIT = ["--wait", "--timeout", "0.001", "--yes"]
COMMANDS = [
    *NOUNS,
    ["whoami"],
    ["plan", "-f", "FILE"],
    ["apply", "-f", "FILE", *WAIT],
    ["export"],
    ["schema"],
    ["rollback", "acme/chat", "1", "--yes"],
    ["purge", "acme", *WAIT],
    ["create", "org", "acme"],
    ["create", "namespace", "acme/chat"],
    ["create", "group", "h200"],
    ["create", "key", "acme", "ci", "--scope", "infer"],
    ["create", "member", "acme", "kim@acme.example", "--role", "viewer"],
    ["delete", "org", "acme", "--yes"],
    ["delete", "namespace", "acme/chat", "--yes"],
    ["delete", "key", "acme", "ci", "--yes"],
    ["delete", "member", "acme", "kim@acme.example", "--yes"],
    ["delete", "agent", "agent-1", "--yes"],
    ["join-token", "create", "first machines"],
    ["join-token", "revoke", "ci", "--yes"],
    ["drain", "agent-1"],  # waiting for its last answer: test_client_terminal.py
    ["resume", "agent-1"],
    ["rollout", "pause", "some-id"],
    ["rollout", "resume", "some-id"],
    ["rollout", "promote", "some-id"],
    ["rollout", "abort", "some-id", "--yes"],
    ["invoice", "acme"],
    ["what-if", "acme/chat", "--ttl", "1h"],
    ["demo-traffic", "start"],
    ["demo-traffic", "stop"],
    ["demo-traffic", "status"],
    ["stats"],
    ["stats", "acme", "--namespace", "chat"],
    ["set-prices", "-f", "FILE", "--yes"],
    ["get", "alerts", "acme"],
    ["acknowledge", "some-id", "--note", "On it"],
    ["silence", "some-id", "--for", "2h"],
    ["silence", "some-id", "--end"],
    ["set-alert-rule", "ci", "--threshold", "0.8", "--off"],
    ["create", "alert-rule", "Cold", "--metric", "hit_ratio", "--below", "0.5"],
    ["delete", "alert-rule", "ci", "--yes"],
]
DIFFERENCE = {"field": "ttl_seconds", "model": None, "before": 1, "after": 2}
CHANGES = [
    {
        "verb": "policy.publish",
        "place": "acme",
        "revision": 1,
        "before": {},
        "differences": [DIFFERENCE],
        "warnings": ["w"],
    },
    {"verb": "organisation.delete", "place": "x", "before": {"namespaces": 1}, "differences": [], "warnings": []},
]
A_RULE = {
    "metric": "hit_ratio", "comparison": "below", "threshold": 0.5, "clears_at": 0.55, "for_seconds": 60,
    "enabled": True, "webhook_url": None, "built_in": None,
}  # fmt: skip
THING: dict[str, Any] = {
    "slug": "acme", "name": "ci", "state": "active", "created_at": "2026-11-21T16:49:02Z", "group": None, "epoch": 1,
    "policy_revision": 1, "revision": 1, "at": "2026-11-21T16:49:02Z", "author": "kim", "note": "", "policy": {},
    "id": "1", "email": "kim@acme.example", "role": "viewer", "prefix": "lmk_1", "scopes": [], "namespaces": None,
    "expires_at": None, "last_used_at": None, "model": "m", "content": {}, "content_bytes": 1,
    "actor": {"name": "kim"}, "verb": "x", "target": "x", "address": None, "kind": "engine", "backend": "paged",
    "in_sync": True, "last_seen_seconds": 0.4, "why": None, "agent": None, "uses_left": 1, "place": "acme", "step": 0,
    "steps": [10, 100], "kv_dtype": "fp8", "verdict": "passed", "may_serve": True, **A_RULE, "rule": "x", "words": "x",
    "since": "2026-11-21T16:49:02Z", "acknowledged": {"by": "kim"}, "silenced_until": None, "owner": "",
}  # fmt: skip
A_PRICE = {
    "model": "", "valid_from": "2026-11-01", "input": "1", "cached_input": "0", "output": "1", "is_example": False,
}  # fmt: skip
A_LINE = {
    "day": "2026-11-01", "namespace": "chat", "model": "m", "requests": 1, "prompt_tokens": 2, "cached_tokens": 1,
    "generated_tokens": 1, "amount": "1.5", "amount_rounded": "1.50", "saved": "0", "saved_rounded": "0.00",
    "is_open": True,
}  # fmt: skip
COUNTS = {"requests": 1, "prompt_tokens": 2, "cached_tokens": 1, "generated_tokens": 1, "hit_ratio": 0.5}
SAVED_MONEY = {"currency": "EUR", "rounded": "0.01", "is_example": True, "without_price": ["m"]}
STATS: dict[str, Any] = {
    **COUNTS, "window_seconds": 86_400, "covered_seconds": 180, "as_of": "2026-11-21T16:49:02Z",
    "before": {**COUNTS, "covered_seconds": 180},
    "ttft_ms": {"p50": 1.5, "p95": 2.5, "p99": 3_000.5, "hit_p50": 1.5, "miss_p50": 2.5}, "resident_bytes": 4_096,
    "saved": {"tokens": 1, "seconds": 0.5, "money": SAVED_MONEY},
    "missed_tokens_by_reason": {"cold": 1, "tail": 0}, "by_model": [{**COUNTS, "model": "m"}],
    "by_namespace": [{**COUNTS, "namespace": "chat", "resident_bytes": 1}], "step_seconds": 1_800,
    "by_organisation": [{**COUNTS, "organisation": None, "resident_bytes": None}],
    "by_key": [
        {**COUNTS, "id": "k", "name": "ci", "prefix": "lmk_1", "is_revoked": True},
        {**COUNTS, "id": None, "name": None, "prefix": None, "is_revoked": False},
    ],
    "points": [COUNTS, {**COUNTS, "hit_ratio": None}],
}  # fmt: skip
FORETOLD = {
    "ttl_seconds": 300, "ttl_mode": "sliding", "limit_share": 1.0, "hit_ratio": 0.5, "hit_ratio_error": 0.01,
    "resident_bytes": 4_096, "hit_tokens_per_day": 10, "saved_money_per_day": STATS["saved"]["money"],
}  # fmt: skip
WHAT_IF = {"is_enough": True, "agents": 2, "measured_hit_ratio": 0.5, "now": FORETOLD, "then": FORETOLD}
DEMO_TRAFFIC = {"is_here": True, "is_on": True, "changed_by": "kim", "changed_at": "2026-11-21T16:49:02Z"}
WHOLE: dict[str, Any] = {  # all that any command reads, in one answer
    "items": [THING], "next_cursor": None, "revision": 1,
    "policy": {"ttl_seconds": 1, "models": {"m": {"ttl_seconds": 2}}},
    "effective_hash": "h", "origin": {"ttl_seconds": "fleet"}, "model_origin": {"ttl_seconds": "fleet"},
    "levels": [{"level": "fleet", "revision": 1}],
    "bounds": {"ttl_seconds": {"min": 1}, "kv_dtype": {"allowed": ["fp8"]}},
    "rule": "x", "metric": "hit_ratio", "silenced_until": None, "webhook_secret": "lmw_1",
    "limits": {"max_keys": 1}, "slug": "acme", "name": "ci", "secret": "lmk_1", "email": "kim@acme.example",
    "invitation_expires_at": "2026-11-21T16:49:02Z", "invitation_url": "https://x", "operation": "o", "state": "done",
    "awaited_agents": ["a"], "receipts": [{"agent": "a"}], "diff": [DIFFERENCE], "warnings": [{"message": "w"}],
    "id": "agent-1", "kind": "engine", "prefix": "ljt_1", "place": "acme", "base_revision": 0, "why": "w",
    "currency": "EUR", "is_example": True, "prices": [A_PRICE], "organisation": "acme", "from": "2026-11-01",
    "to": "2026-11-22", "may_change_from": "2026-11-20", "without_price": ["m"], "totals": A_LINE, "lines": [A_LINE],
    **STATS, **WHAT_IF, **DEMO_TRAFFIC,
    "problems": [], "hash": "h", "changes": CHANGES,
    "summary": {"create": 0, "change": 1, "delete": 1, "objects_deleted": 2},
}  # fmt: skip
EVIL = "x\x1b[2J\x1b[31m\x9b2J\u202e\ny"


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of everything in the answer."""
    names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield (*path, name)
        yield from paths(value[name], (*path, name))


def changed(path: tuple[Any, ...], value: Any) -> Any:
    """The whole answer with another value in one place; without it where that is `...`."""
    answer = copy.deepcopy(WHOLE)
    place: Any = answer
    for name in path[:-1]:
        place = place[name]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return answer


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUMINET_TOKEN", "lmo_x")
    monkeypatch.delenv("LUMINET_URL", raising=False)
    path = tmp_path / "policies.yaml"
    path.write_text("version: 1\ncurrency: USD\nprices: []\n")
    return path


def run(command: list[str], file: Path, *more: str) -> int:
    return luminet([str(file) if word == "FILE" else word for word in command] + list(more))


def answering(body: Any) -> Any:
    return patch.object(Rest, "ask", lambda self, method, path, body_=None, **more: Answer(200, {"etag": '"1"'}, body))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_answer_with_all_it_should_have_is_understood(command: list[str], file: Path) -> None:
    with answering(WHOLE):
        assert run(command, file) == (2 if command[0] == "plan" else 0)
        assert run(command, file, "--json") == (2 if command[0] == "plan" else 0)


def test_what_if_rounds_ratios_down_as_stats_does(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(WHOLE | {"measured_hit_ratio": 0.9996, "then": {**FORETOLD, "hit_ratio": 0.9996}}):
        assert run(["what-if", "acme/chat", "--ttl", "60"], file) == 0
    said = capsys.readouterr().out
    assert "99.9 % measured" in said
    assert "99.9 % ±" in said
    assert "100.0 %" not in said


@pytest.mark.parametrize(
    ("command", "words"),
    [(["stats", "acme"], "The money saved lacks what has no price: m."), (["what-if", "acme/chat"], "without m")],
)
def test_money_that_lacks_a_model_says_which(
    file: Path, capsys: pytest.CaptureFixture[str], command: list[str], words: str
) -> None:
    with answering(WHOLE):
        assert run(command, file) == 0
    assert words in capsys.readouterr().out
    whole = {**SAVED_MONEY, "without_price": []}
    with answering(
        WHOLE
        | {"saved": {**STATS["saved"], "money": whole}}
        | {name: {**FORETOLD, "saved_money_per_day": whole} for name in ("now", "then")}
    ):
        assert run(command, file) == 0
    assert words not in capsys.readouterr().out


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(COMMANDS),
    st.sampled_from(list(paths(WHOLE))),
    st.sampled_from([..., None, 1, True, EVIL, [], {}, [EVIL], {EVIL: EVIL}, [None]]),
    st.booleans(),
)
def test_one_wrong_thing_in_an_answer_is_no_traceback_and_obeyed_by_no_terminal(
    file: Path, capsys: pytest.CaptureFixture[str], command: list[str], path: tuple[Any, ...], value: Any, as_json: bool
) -> None:
    with answering(changed(path, value)):
        assert run(command, file, *(["--json"] if as_json else [])) in (0, 1, 2)
    said = capsys.readouterr()
    assert all(line.isprintable() for line in (said.out + said.err).split("\n"))


@pytest.mark.parametrize("body", [None, [], {}, 1, "text", [{}], {"items": 1}], ids=str)
def test_an_answer_of_something_else_is_a_sentence(body: Any, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(body):
        statuses = {run(command, file) for command in COMMANDS}
    assert statuses <= {0, 1}
    assert "is this a Luminet of our version?" in capsys.readouterr().err


PROBLEM = {"Content-Type": "application/problem+json"}
UNAUTHENTICATED = json.dumps({"title": "Not signed in", "status": 401, "detail": "This token is not known."}).encode()
BROKEN: dict[str, tuple[Reply | None, str]] = {
    "500": ((500, PROBLEM, b'{"title": "Broken", "request_id": "abc"}'), "request_id: abc"),
    "500 of a proxy": ((500, {"Content-Type": "text/html"}, b"<html>"), "status 500 and no JSON"),
    "500 that is no problem": ((500, {}, b'["x"]'), "status 500 and no JSON"),
    "HTML": ((200, {"Content-Type": "text/html"}, b"<html>"), "is LUMINET_URL a Luminet control plane?"),
    "truncated JSON": ((200, {}, b'{"items": [{"slug": "ac'), "no JSON"),
    "not UTF-8": ((200, {}, b'{"items": "\xff"}'), "no JSON"),
    "invalid token": ((401, PROBLEM, UNAUTHENTICATED), "Not signed in (401)"),
    "nothing": (None, "does not answer"),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(rest, "TRIES", 1)
    with misbehaving() as server:
        yield server


@pytest.mark.parametrize("kind", BROKEN)
def test_a_server_that_fails_is_a_sentence(
    kind: str, server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reply, said = BROKEN[kind]
    server.replies = [reply]
    for command in COMMANDS:
        assert run(command, file, "--url", server.url) == 1, command
        err = capsys.readouterr().err
        assert said in err, command
        assert "Traceback" not in err


def test_nobody_there_is_a_sentence(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rest, "TRIES", 1)
    for command in COMMANDS:
        assert run(command, file, "--url", f"http://127.0.0.1:{free_port()}") == 1
        assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["two words", "ü", "x" * 600, "a\x1bb", "\n"])
def test_what_cannot_be_a_token_is_not_sent(
    token: str, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUMINET_TOKEN", token)
    monkeypatch.setenv("LUMINET_HOME", str(tmp_path))
    assert run(["whoami"], file) == 1
    assert "LUMINET_TOKEN" in capsys.readouterr().err


def test_a_mistake_of_our_own_is_not_blamed_on_the_server(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def mistaken(*args: Any) -> int:
        raise TypeError("ours")

    monkeypatch.setattr(Rest, "get", mistaken)
    with pytest.raises(TypeError, match="ours"):
        run(["whoami"], file)


def test_a_shape_is_what_must_be_there() -> None:
    shape = {"a": [{"b": int}], "c": (str, type(None)), "d": object}
    good = {"a": [{"b": 1, "more": 2}], "c": None, "d": []}
    assert shaped(good, shape) is good
    wrong = [
        {**good, "a": {}},
        {**good, "a": [{"b": "1"}]},
        {**good, "a": [{}]},
        {**good, "c": 1},
        {"a": [], "c": ""},
        [],
    ]
    for value in wrong:
        with pytest.raises(Unexpected):
            shaped(value, shape)


LOST = {
    "create key acme ci --scope infer": ("Key ci", "luminet delete key acme agent-1"),
    "create member acme kim@acme.example --role viewer": (
        "The invitation of kim@acme.example",
        "luminet delete member acme kim@acme.example",
    ),
    "join-token create ci": ("Join token ci", "luminet join-token revoke agent-1"),
    "create alert-rule ci --metric hit_ratio --below 0.5 --webhook https://hooks.acme.example/x": (
        "Alert rule ci",
        "luminet delete alert-rule agent-1",
    ),
}


@pytest.mark.parametrize("command", LOST)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_lost_secret_says_what_to_do(
    command: str, more: tuple[str, ...], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(WHOLE | dict.fromkeys(("secret", "invitation_url", "webhook_secret"))):
        assert run(command.split(), file, *more) == 1
    told = capsys.readouterr()
    what, back = LOST[command]
    assert f"{what} was made, but the answer with its secret was lost" in told.err
    assert told.err.rstrip().endswith(back)
    assert told.out == ""
