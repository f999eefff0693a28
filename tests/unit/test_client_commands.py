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

from controlplane.cli import main
from controlplane.client import reading, rest
from controlplane.client.rest import Answer, Rest
from controlplane.client.shapes import Unexpected, shaped
from controlplane.stack.ports import free_port
from tests.misbehaving import Reply, Server, misbehaving

PLACES = {"namespace": "acme/chat", "pins": "acme/chat", "operation": "some-id", "orgs": "", "audit": "", "groups": ""}
PLACES |= {"agents": "", "join-tokens": "", "rollouts": "", "quality": "", "agent": "agent-1", "rollout": "some-id"}
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
    ["drain", "agent-1", *WAIT[:-1]],
    ["resume", "agent-1"],
    ["rollout", "pause", "some-id"],
    ["rollout", "resume", "some-id"],
    ["rollout", "promote", "some-id"],
    ["rollout", "abort", "some-id", "--yes"],
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
THING: dict[str, Any] = {
    "slug": "acme", "name": "ci", "state": "active", "created_at": "2026-11-21T16:49:02Z", "group": None, "epoch": 1,
    "policy_revision": 1, "revision": 1, "at": "2026-11-21T16:49:02Z", "author": "kim", "note": "", "policy": {},
    "id": "1", "email": "kim@acme.example", "role": "viewer", "prefix": "lmk_1", "scopes": [], "namespaces": None,
    "expires_at": None, "last_used_at": None, "model": "m", "content": {}, "content_bytes": 1,
    "actor": {"name": "kim"}, "verb": "x", "target": "x", "address": None, "kind": "engine", "backend": "paged",
    "in_sync": True, "last_seen_seconds": 0.4, "why": None, "agent": None, "uses_left": 1, "place": "acme", "step": 0,
    "steps": [10, 100], "kv_dtype": "fp8", "verdict": "passed", "may_serve": True,
}  # fmt: skip
WHOLE: dict[str, Any] = {  # all that any command reads, in one answer
    "items": [THING], "next_cursor": None, "revision": 1,
    "policy": {"ttl_seconds": 1, "models": {"m": {"ttl_seconds": 2}}},
    "effective_hash": "h", "origin": {"ttl_seconds": "fleet"}, "model_origin": {"ttl_seconds": "fleet"},
    "levels": [{"level": "fleet", "revision": 1}],
    "bounds": {"ttl_seconds": {"min": 1}, "kv_dtype": {"allowed": ["fp8"]}},
    "limits": {"max_keys": 1}, "slug": "acme", "name": "ci", "secret": "lmk_1", "email": "kim@acme.example",
    "invitation_expires_at": "2026-11-21T16:49:02Z", "invitation_url": "https://x", "operation": "o", "state": "done",
    "awaited_agents": ["a"], "receipts": [{"agent": "a"}], "diff": [DIFFERENCE], "warnings": [{"message": "w"}],
    "id": "agent-1", "kind": "engine", "prefix": "ljt_1", "place": "acme", "base_revision": 0, "why": "w",
    "problems": [], "hash": "h", "changes": CHANGES, "summary": {"create": 0, "change": 1, "delete": 1},
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
    path.write_text("version: 1\n")
    return path


def run(command: list[str], file: Path, *more: str) -> int:
    return main([str(file) if word == "FILE" else word for word in command] + list(more))


def answering(body: Any) -> Any:
    return patch.object(Rest, "ask", lambda self, method, path, body_=None, **more: Answer(200, {"etag": '"1"'}, body))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_answer_with_all_it_should_have_is_understood(command: list[str], file: Path) -> None:
    with answering(WHOLE):
        assert run(command, file) == (2 if command[0] == "plan" else 0)
        assert run(command, file, "--json") == (2 if command[0] == "plan" else 0)


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

    monkeypatch.setattr(reading, "whoami", mistaken)
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
