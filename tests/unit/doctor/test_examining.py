"""How checks are run, and how what they found is told."""

import io
import json
import re
import threading
from collections.abc import Iterator

import pytest

from controlplane.cli import main
from controlplane.client.tables import Paper
from controlplane.doctor import report
from controlplane.doctor.checks import CHECKS, TITLES, checks_of
from controlplane.doctor.context import Context, shared
from controlplane.doctor.examining import Check, Examinations
from controlplane.doctor.finding import Finding, NotExamined, Status, broken, not_examined, note, ok, warning
from controlplane.doctor.place import Place
from controlplane.settings.env import CHECKOUT

CONTEXT = Context(Place("stack", {}, is_checkout=False))


def test_checks_run_at_the_same_time_and_are_told_in_their_order() -> None:
    met = threading.Barrier(2, timeout=30)

    def look(name: str) -> Iterator[Finding]:
        met.wait()
        yield ok(name, "well")

    checks = [Check("disk", "a", lambda _: look("a")), Check("gpu", "b", lambda _: look("b"))]
    found = Examinations(checks, CONTEXT, 30.0).findings()
    assert [(one.name, one.status) for _, one in found] == [("a", Status.OK), ("b", Status.OK)]


def test_a_check_that_hangs_is_left_behind_and_the_others_are_not() -> None:
    over = threading.Event()

    def hang(_: Context) -> Iterator[Finding]:
        over.wait(60)
        yield ok("late", "too late")

    checks = [Check("disk", "late", hang), Check("disk", "well", lambda _: [ok("well", "x")])]
    found = Examinations(checks, CONTEXT, 0.2).findings()
    over.set()
    assert [(one.name, one.status) for _, one in found] == [("late", Status.NOT_EXAMINED), ("well", Status.OK)]
    assert found[0][1].do is not None


def test_a_check_that_fails_says_nothing_and_ends_nobody_elses() -> None:
    def fail(_: Context) -> Iterator[Finding]:
        yield ok("before", "x")
        raise ValueError("no such\nthing")

    def away(_: Context) -> list[Finding]:
        raise NotExamined("the database does not answer")

    found = Examinations([Check("disk", "failing", fail), Check("disk", "away", away)], CONTEXT).findings()
    assert [one.says for _, one in found] == ["Failing: ValueError: no such", "Away: the database does not answer"]


def test_a_shared_fact_is_found_once_also_where_it_cannot_be() -> None:
    asked: list[int] = []

    @shared
    def fact(_: Context) -> int:
        asked.append(1)
        raise NotExamined("away")

    for _ in range(3):
        with pytest.raises(NotExamined):
            fact(CONTEXT)
    assert len(asked) == 1


FOUND = [
    ("disk", ok("space", "Enough")),
    ("disk", warning("inodes", "Few\x1b[2J", "delete some")),
    ("gpu", not_examined("GPU", "no engine here")),
    ("fleet", broken("agent-1", "It is stale", "look")),
    ("fleet", note("alerts", "One fires")),
]


def test_people_read_it_by_area_with_what_to_do_and_a_sum_at_the_end() -> None:
    stream = io.StringIO()
    report.as_text(Paper(stream, {}), "Luminet 0.1.0: here", TITLES, FOUND)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Luminet 0.1.0: here"
    assert "  warning       Few [2J" in lines  # nothing that a terminal would obey
    assert "                → delete some" in lines
    assert lines[-1] == "1 broken, 1 warning, 1 well, 1 note, 1 not examined: no engine here."
    assert "\x1b" not in stream.getvalue()


def test_programs_read_a_list_of_five_members() -> None:
    found = json.loads(json.dumps(report.as_json(FOUND)))
    assert [[*one] for one in found] == [["area", "name", "status", "says", "do"]] * 5
    assert found[0] == {"area": "disk", "name": "space", "status": "ok", "says": "Enough", "do": None}
    assert {one["status"] for one in found} == {"ok", "note", "warning", "broken", "not_examined"}


def test_only_what_is_broken_ends_with_status_one() -> None:
    assert report.exit_status(FOUND) == 1
    assert report.exit_status([one for one in FOUND if one[1].status is not Status.BROKEN]) == 0


def test_where_there_is_neither_checkout_nor_setting_it_says_how_to_be_told_what_is_meant() -> None:
    (check,) = checks_of(CONTEXT.place)
    (found,) = check.look(CONTEXT)
    assert (found.status, "--home" in str(found.do)) == (Status.BROKEN, True)


def test_area_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "weather"])
    assert caught.value.code == 1
    assert f"'weather' is none of {', '.join(TITLES)}" in capsys.readouterr().err


def test_checks_follow_the_documented_areas() -> None:
    rows = re.findall(
        r"^\| `([a-z]+)` \|", (CHECKOUT / "docs" / "doctor.md").read_text().partition("## Areas")[2], re.M
    )
    assert rows == [*TITLES] == [*dict.fromkeys(check.area for check in CHECKS)]
