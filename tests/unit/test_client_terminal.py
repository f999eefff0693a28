"""What the client says to people, whom it asks, and where it sends its token."""

import io
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import main
from controlplane.client import asking, changing, reading, session
from controlplane.client.asking import agreed, idle_wait, operation_wait, working
from controlplane.client.changes import plan_lines
from controlplane.client.errors import ClientError
from controlplane.client.places import Place, namespace_read, organisation_read, place_read
from controlplane.client.rest import Answer, Rest
from controlplane.client.session import connect, url_checked
from controlplane.client.tables import Paper, bound, cell, width
from controlplane.commands import local
from tenants.actor import REST_SCOPES, Scope
from tests.support.luminet_command import understood


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def paper() -> tuple[Paper, io.StringIO]:
    stream = io.StringIO()
    return Paper(stream, {}), stream


# Places.


@pytest.mark.parametrize(
    ("text", "place", "path"),
    [
        (None, Place(), ""),
        ("fleet", Place(), ""),
        ("fleet/", Place("fleet"), "/orgs/fleet"),
        ("acme", Place("acme"), "/orgs/acme"),
        ("acme/chat", Place("acme", "chat"), "/orgs/acme/namespaces/chat"),
        ("a?/..", Place("a?", ".."), "/orgs/a%3F/namespaces/.."),
    ],
)
def test_places_are_read_as_people_write_them(text: str | None, place: Place, path: str) -> None:
    assert (place_read(text), place_read(text).path) == (place, path)


def test_what_is_no_place_or_not_the_right_kind_is_said() -> None:
    for read, text in ((place_read, "a/b/c"), (place_read, "/b"), (organisation_read, "a/b"), (namespace_read, "a")):
        with pytest.raises(ClientError, match="acme"):
            read(text)


# Addresses and tokens.


@pytest.mark.parametrize(
    "url",
    ["https://luminet.example", "http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost", "http://127.9.9.9"],
)
def test_addresses_a_token_may_travel_to(url: str) -> None:
    assert url_checked(url + "/", insecure=False) == url


def test_addresses_it_may_not(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "http://luminet.example",
        "http://10.0.0.1",
        "ftp://x",
        "luminet.example",
        "https://",
        "https://u:p@x",
        "https://x?a",
        "https://x:99999",
        "https://[x",
        "http://localhost.example.com",
        "http://0.0.0.0",
    ]
    for url in cases:
        with subtests.test(msg=url), pytest.raises(ClientError):
            url_checked(url, insecure=False)


def test_in_clear_is_for_who_says_so() -> None:
    assert url_checked("http://luminet.example", insecure=True) == "http://luminet.example"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a running stack has written down."""
    found: dict[str, Any] = {"web": "http://127.0.0.1:8010", "operator": {"token": "lmo_demo"}}
    monkeypatch.setattr(session, "_demo", lambda: found or None)
    return found


def test_the_environment_says_who_and_where(demo: dict[str, Any]) -> None:
    rest = connect(None, {"LUMINET_URL": "https://a.example/", "LUMINET_TOKEN": " lmk_x "})
    assert (rest.url, rest.token) == ("https://a.example", "lmk_x")
    assert connect(None, {"LUMINET_TOKEN": "lmk_x"}).url == "http://127.0.0.1:8000"
    assert connect("https://b.example", {"LUMINET_TOKEN": "lmk_x"}).url == "https://b.example"


def test_without_them_the_stack_beside_us_is_meant(demo: dict[str, Any]) -> None:
    rest = connect(None, {})
    assert (rest.url, rest.token) == ("http://127.0.0.1:8010", "lmo_demo")
    assert connect("http://127.0.0.1:8010/", {}).token == "lmo_demo"


def test_its_token_goes_nowhere_else(demo: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match=r"for https://evil\.example"):
        connect("https://evil.example", {})


def test_no_token_anywhere_is_said_with_the_way_out(demo: dict[str, Any]) -> None:
    demo["operator"]["token"] = None
    with pytest.raises(ClientError, match="luminet operator-token"):
        connect(None, {})
    demo.clear()
    with pytest.raises(ClientError, match="no stack runs from here"):
        connect(None, {})
    with pytest.raises(ClientError, match="is no token"):
        connect(None, {"LUMINET_TOKEN": "two words"})


def test_a_stack_that_does_not_run_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_HOME", str(tmp_path))
    (tmp_path / "demo.json").write_text(json.dumps({"web": "http://127.0.0.1:1", "operator": {"token": "lmo_old"}}))
    assert session._demo() is None


# Tables.


EVIL = "a\x1b[2J\x1b[31m\x9b2J\u202e\nb"


def test_columns_line_up_whatever_the_letters() -> None:
    out, stream = paper()
    out.table(["NAME", "N"], [["名前", 1], ["e\u0301t\u00e9", None], ["plain", True]], empty="")
    assert stream.getvalue().splitlines() == ["NAME   N", "名前   1", "e\u0301t\u00e9    –", "plain  yes"]
    assert width("名前") == 4


def test_nothing_in_a_cell_moves_the_cursor() -> None:
    assert cell("a\x1b[31m\nb\u202e") == "a [31m b "
    assert cell(["x", "y"]) == "x, y"
    assert cell([]) == "none"
    assert cell({"max": 7}) == '{"max": 7}'
    assert cell(0.5) == "0.5"


def test_nothing_that_is_said_moves_the_cursor() -> None:
    for stream in (io.StringIO(), Tty()):
        out = Paper(stream, {})
        out.say(EVIL, f"{out.paint('!', 33)} {EVIL}")
        out.table([EVIL], [[EVIL]], empty="")
        out.record([(EVIL, EVIL)])
        seen = re.sub(r"\x1b\[[0-9]{1,2}m", "", stream.getvalue()) if stream.isatty() else stream.getvalue()
        assert all(line.isprintable() for line in seen.split("\n"))
        assert len(seen.splitlines()) == 5


def test_json_means_the_same_and_moves_no_cursor_either() -> None:
    out, stream = paper()
    value = {EVIL: [EVIL, "ü 名前", "\U000e0001", "\ud800"], "at": "2026-11-21T16:49:02.102967Z"}
    out.json(value)
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    assert "ü 名前" in stream.getvalue()
    assert json.loads(stream.getvalue()) == value


def test_times_and_bounds_are_said_as_people_say_them() -> None:
    assert cell("2026-11-21T16:49:02.102967Z") == "2026-11-21 16:49:02 UTC"
    assert cell([{"at": "2026-11-21T16:49:02Z"}]) == '[{"at": "2026-11-21 16:49:02 UTC"}]'
    bounds: tuple[Any, ...] = ({"min": 60, "max": 3600}, {"max": 0.5}, {"min": 1}, {}, {"allowed": ["fp8"]}, None)
    assert [bound(one) for one in bounds] == [
        "60 to 3600", "up to 0.5", "1 to any", "any", "one of fp8", "operators only",
    ]  # fmt: skip


def test_an_empty_list_says_what_to_do() -> None:
    out, stream = paper()
    out.table(["NAME"], [], empty="Nothing yet.")
    assert stream.getvalue() == "Nothing yet.\n"


def test_colours_are_for_terminals_that_want_them() -> None:
    assert Paper(Tty(), {}).paint("x", 31) == "\x1b[31mx\x1b[0m"
    for stream, environ in ((io.StringIO(), {}), (Tty(), {"NO_COLOR": "1"}), (Tty(), {"TERM": "dumb"})):
        assert Paper(stream, environ).paint("x", 31) == "x"


def test_a_plan_reads_as_sentences() -> None:
    changes = [
        {
            "verb": "organisation.delete",
            "place": "globex",
            "before": {"namespaces": 3},
            "differences": [],
            "warnings": [],
        },
        {
            "verb": "policy.publish",
            "place": "acme/chat",
            "revision": 6,
            "differences": [{"field": "kv_dtype", "model": "m", "before": "fp8", "after": "int8"}],
            "more_differences": 7,
            "warnings": ["cold cache"],
        },
        {"verb": "policy.publish", "place": "acme", "revision": 0, "differences": [], "warnings": []},
    ]
    found = {"changes": changes, "summary": {"create": 0, "change": 2, "delete": 1, "objects_deleted": 8}}
    assert plan_lines(found, paper()[0]) == [
        "- globex     delete the organisation and its 3 namespaces",
        "~ acme/chat  publish a policy (revision 6 → 7)",
        "    kv_dtype (m): fp8 → int8",
        "    … and 7 more",
        "    ! cold cache",
        "~ acme       publish a policy (revision 0 → 1, which changes nothing in force)",
        "",
        "0 to create, 2 to change, 1 to delete (8 with all inside).",
    ]
    assert plan_lines({"changes": [], "summary": {}}, paper()[0]) == ["Nothing to change."]


# Asking and waiting.


def test_consent_is_the_very_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    agreed("Delete it", "acme", yes=True)
    monkeypatch.setattr(sys, "stdin", Tty("acme\n"))
    agreed("Delete it", "acme", yes=False)
    for typed in ("yes\n", "", "acme2\n"):
        monkeypatch.setattr(sys, "stdin", Tty(typed))
        with pytest.raises(ClientError, match="nothing was changed"):
            agreed("Delete it", "acme", yes=False)
    assert capsys.readouterr().err.replace("\n", "").isprintable()
    monkeypatch.setattr(sys, "stdin", Tty("a [2J 2J\n"))
    agreed("Delete a\x1b[2J\x9b2J", "a\x1b[2J\x9b2J", yes=False)
    assert capsys.readouterr().err.isprintable()
    monkeypatch.setattr(sys, "stdin", io.StringIO("acme\n"))
    with pytest.raises(ClientError, match="say --yes"):
        agreed("Delete it", "acme", yes=False)


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with working("Applying"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(asking, "QUIET_SECONDS", 0.0)
    with working("Applying"):
        pass
    assert capsys.readouterr().err in ("", "Applying …\n")


def waited(monkeypatch: pytest.MonkeyPatch, *states: str, seconds: float) -> str:
    left = list(states)
    answers = lambda self, path: Answer(200, {}, {"state": left.pop(0), "awaited_agents": ["agent-1"]})  # noqa: E731
    monkeypatch.setattr(Rest, "get", answers)
    rest = Rest("http://127.0.0.1", "t", sleep=lambda pause: None)
    return str(operation_wait(rest, "some-id", seconds=seconds)["state"])


def test_an_operation_is_followed_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, "running", "running", "done", seconds=60) == "done"
    assert waited(monkeypatch, "failed", seconds=60) == "failed"
    with pytest.raises(ClientError, match="awaited: agent-1"):
        waited(monkeypatch, "running", seconds=0)


@pytest.mark.parametrize("last", [{"running": 0, "waiting": 0}, {"running": None, "waiting": None}])
def test_a_drain_waits_for_the_last_answer(monkeypatch: pytest.MonkeyPatch, last: dict[str, int | None]) -> None:
    """As the agent says after its receipt: what it said before may be older than its last request."""
    said = [
        {"running": 0, "waiting": 0, "heartbeat": 7, "last_seen_at": "10:00"},
        {"running": 0, "waiting": 0, "heartbeat": 7, "last_seen_at": "10:01"},  # a report, which counts no requests
        {"running": 1, "waiting": 0, "heartbeat": 8, "last_seen_at": "10:05"},
        {"running": 0, "waiting": 2, "heartbeat": 9, "last_seen_at": "10:10"},
        {**last, "heartbeat": 10, "last_seen_at": "10:15"},
    ]
    monkeypatch.setattr(Rest, "get", lambda self, path: Answer(200, {}, said.pop(0)))
    idle_wait(Rest("http://127.0.0.1", "t", sleep=lambda pause: None), "agent-1", deadline=time.monotonic() + 60)
    assert said == []


def test_a_drain_waits_also_where_the_control_plane_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [{"running": 0, "waiting": 0, "last_seen_at": seen} for seen in ("10:00", "10:00", "10:05")]
    monkeypatch.setattr(Rest, "get", lambda self, path: Answer(200, {}, said.pop(0)))
    idle_wait(Rest("http://127.0.0.1", "t", sleep=lambda pause: None), "agent-1", deadline=time.monotonic() + 60)
    assert said == []


def test_a_drain_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"running": 3, "waiting": 1, "last_seen_at": "10:00"}
    monkeypatch.setattr(Rest, "get", lambda self, path: Answer(200, {}, busy))
    with pytest.raises(ClientError, match="agent-1 still answers 4 requests"):
        idle_wait(Rest("http://127.0.0.1", "t"), "agent-1", deadline=time.monotonic())


# The command line.


def test_the_scopes_to_choose_from_are_all_there_are() -> None:
    assert set(changing.SCOPES) == {scope.value for scope in Scope}
    assert set(local.SCOPES) == {scope.value for scope in REST_SCOPES}


def test_every_empty_list_says_what_to_do_next() -> None:
    found = {name: one.empty for name, one in reading.NOUNS.items() if isinstance(one, reading.Listing)}
    assert {name for name, words in found.items() if ": " not in words} == set()


@pytest.mark.parametrize(
    "wrong",
    [
        "plan", "plan -f", "get", "get unicorns", "get audit --limit 0", "rollback acme -1", "rollback acme x",
        "get audit --limit 99999999999999999999", "rollback acme 2147483648", "rollback acme 1_0", "nonsense",
        "purge acme --wait --timeout nan", "purge acme --timeout inf", "purge acme --timeout 0",
        "purge acme --timeout 1e9", "purge acme --timeout=-1", "purge acme --timeout soon",
        "operator-token you@example.com --scope bad",
        "operator-token you@example.com --scope infer", "create key acme ci --scope infer --expires 999999w",
        "create key acme ci --scope infer --expires 0d", "create key acme ci", "create key acme ci --scope all",
    ],
)  # fmt: skip
def test_a_mistyped_command_does_not_look_like_a_plan_with_changes(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(wrong.split()) == 1
    said = capsys.readouterr()
    assert (said.out, "--help" in said.err, "Traceback" in said.err) == ("", True, False)


def test_an_answer_of_another_version_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUMINET_TOKEN", "lmo_x")
    monkeypatch.setattr(Rest, "get", lambda self, path, **query: Answer(200, {}, {"unexpected": 1}))
    assert main(["get", "orgs"]) == 1
    assert "is this a Luminet of our version?" in capsys.readouterr().err


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Rest, path: str, **query: Any) -> Answer:
        raise KeyboardInterrupt

    monkeypatch.setenv("LUMINET_TOKEN", "lmo_x")
    monkeypatch.setattr(Rest, "get", interrupt)
    assert main(["whoami"]) == 130


def test_every_command_that_asks_can_be_told_yes() -> None:
    for command in (["apply", "-f", "x"], ["rollback", "a", "1"], ["purge", "a"], ["delete", "org", "a"]):
        assert understood([*command, "--yes"])["yes"] is True
