"""How facts are evaluated, without a machine, a database or a clock."""

import errno
import os
import stat
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.doctor import (
    broker,
    clock,
    database,
    fleet,
    gpu,
    home,
    machine,
    permissions,
    reachability,
    records,
    settings,
    stack,
    versions,
)
from controlplane.doctor.finding import Finding, Status
from controlplane.doctor.place import Place
from controlplane.doctor.web import WebSeen
from controlplane.settings.reader import BadSetting
from controlplane.stack.config import read_stack_config
from controlplane.stack.ports import Listener
from tests.support.case_names import case_name

OK, NOTE, WARNING, BROKEN = Status.OK, Status.NOTE, Status.WARNING, Status.BROKEN
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
GIB = 2**30


def statuses(found: Iterable[Finding]) -> list[Status]:
    return [one.status for one in found]


# Versions.


@pytest.mark.parametrize(
    ("found", "status"), [((3, 10, 9), BROKEN), ((3, 11, 0), OK), ((3, 13, 9), OK), ((3, 14, 0), BROKEN)]
)
def test_python_is_one_that_is_tested(found: tuple[int, ...], status: Status) -> None:
    assert versions.python_finding(found).status is status


def test_a_package_that_is_not_as_pinned_is_named_and_another_build_of_the_same_is_none() -> None:
    pinned = versions.pins("# comment\ndjango==5.2.19\nTorch==2.13.0\nzope.interface==1\n")
    installed = {"django": "5.2.1", "torch": "2.13.0+cpu"}
    found = versions.constraints_finding(installed, pinned, install="pip install")
    assert (found.status, found.do) == (WARNING, "pip install")
    assert "django 5.2.1 instead of 5.2.19" in found.says
    assert "torch" not in found.says
    assert versions.constraints_finding({"torch": "2.13.0+cpu"}, pinned, install="").status is OK


@pytest.mark.parametrize(("theirs", "status"), [(None, OK), ("0.1.0", OK), ("0.1.7", NOTE), ("0.2.0", WARNING)])
def test_our_version_is_compared_with_the_control_planes(theirs: str | None, status: Status) -> None:
    assert versions.luminet_finding("0.1.0", theirs).status is status


def test_old_servers_are_broken() -> None:
    assert versions.postgres_finding(180_004) == Finding("postgres", OK, "PostgreSQL 18.4")
    assert versions.postgres_finding(170_009).status is BROKEN
    assert [versions.redis_finding(one).status for one in ("6.2.14", "8.0.1", "6.0.9", "5.0")] == [
        OK,
        OK,
        BROKEN,
        BROKEN,
    ]


# Reachability.


def test_a_database_that_does_not_answer_is_broken_with_its_reason_and_what_to_do() -> None:
    config = read_stack_config({})
    do = Place("stack", {}, is_checkout=True, config=config).log_advice("postgres") or ""
    (found,) = database.database_findings(database.DatabaseSeen(problem="connection refused"), do=do)
    assert (found.status, found.says) == (BROKEN, "The database does not answer: connection refused")
    assert found.do == f"make down, then make up; {config.logs}/postgres.log says why"


def test_a_replica_and_a_full_database_are_told_beside_that_it_answers() -> None:
    seen = database.DatabaseSeen(version=180_004, connections=95, most_connections=100, is_replica=True)
    assert statuses(database.database_findings(seen, do="look")) == [OK, BROKEN, WARNING]


def test_a_broker_that_throws_messages_away_is_warned_of() -> None:
    seen = broker.RedisSeen(policy="allkeys-lru", used_bytes=95, most_bytes=100)
    assert statuses(broker.redis_findings(seen, do="look")) == [OK, WARNING, WARNING]
    seen = broker.RedisSeen(policy="noeviction", used_bytes=1, most_bytes=100)
    assert statuses(broker.redis_findings(seen, do="look")) == [OK]


def test_a_login_that_owns_the_trail_is_warned_of() -> None:
    assert records.owner_finding([]).status == OK
    finding = records.owner_finding(["tenants_auditrecord"])
    assert (finding.status, "owns tenants_auditrecord" in finding.says) == (WARNING, True)


def test_anchors_that_do_not_fit_are_broken() -> None:
    file = Path("/audit/anchors.jsonl")
    assert records.anchor_finding(file, (), 60).status == OK
    assert records.anchor_finding(file, (), 60, has_begun=False).status == NOTE
    assert records.anchor_finding(file, (), 1_000).status == BROKEN
    finding = records.anchor_finding(file, ("records 4 to 6 are missing",), 0)
    assert (finding.status, finding.says) == (
        BROKEN,
        "The audit trail does not fit its anchors: records 4 to 6 are missing",
    )


def test_a_refused_trial_login_is_broken_and_says_why() -> None:
    assert broker.trial_login_finding(None).status == OK
    finding = broker.trial_login_finding("it refuses to make one: Unknown command")
    assert finding.status == BROKEN
    assert finding.says == "Agents get no login at Redis: it refuses to make one: Unknown command"


def test_logins_at_the_broker_may_do_what_they_must_and_nothing_more() -> None:
    well = broker.RedisSeen(users=["default", "agent.a.1"])
    assert statuses(broker.login_findings(well, expected=["agent.a.1"])) == [OK, OK]
    assert statuses(broker.login_findings(well, expected=["agent.a.1", "agent.b.1"])) == [OK, WARNING]
    assert statuses(broker.login_findings(broker.RedisSeen(acl_problem="no permissions"), expected=[])) == [BROKEN]
    loose = broker.RedisSeen(users=["agent.a.1"], is_open=True, loose=["agent.a.1"])
    assert statuses(broker.login_findings(loose, expected=["agent.a.1"])) == [OK, BROKEN, BROKEN]


def test_a_web_that_is_not_ready_says_what_it_lacks() -> None:
    told = {"checks": {"database": "ok", "broker": "does not answer"}}
    found = reachability.web_finding("http://x", WebSeen(503, told), do="look")
    assert (found.status, found.says) == (BROKEN, "The web at http://x is not ready: broker: does not answer")
    assert reachability.web_finding("http://x", WebSeen(200), do="look").status is BROKEN  # somebody else's
    ready = WebSeen(200, {"checks": {"database": "ok"}})
    assert reachability.web_finding("http://x", ready, do="look").status is OK


@pytest.mark.parametrize(("age", "status"), [(2.0, OK), (10.0, OK), (11.0, WARNING), (61.0, BROKEN), (None, WARNING)])
def test_a_pulse_that_stays_away_is_told(age: float | None, status: Status) -> None:
    assert reachability.pulse_finding(age, do="look").status is status


@pytest.mark.parametrize(("days", "status"), [(90, OK), (22, OK), (20, WARNING), (1, WARNING)])
def test_a_certificate_is_warned_of_three_weeks_before_its_end(days: int, status: Status) -> None:
    assert reachability.certificate_finding("x", None, NOW + timedelta(days=days), NOW).status is status
    assert reachability.certificate_finding("x", "certificate has expired", None, NOW).status is BROKEN


def test_a_stack_that_does_not_run_is_broken_and_make_up_is_what_to_do() -> None:
    found = stack.stopped_finding([], is_installed=False)
    assert (found.status, found.do) == (BROKEN, "make up")
    assert "postgres" in stack.stopped_finding(["postgres"], is_installed=True).says


# Permissions and secrets.


def seen(mode: int, *, is_folder: bool = False, owner: int = 1000, may_be_passed: bool = False) -> permissions.FileSeen:
    kind = stat.S_IFDIR if is_folder else stat.S_IFREG
    return permissions.FileSeen("a file", kind | mode, owner, may_be_passed)


def test_secrets_are_for_their_owner_alone(subtests: pytest.Subtests) -> None:
    cases: list[tuple[permissions.FileSeen, Status]] = [
        (seen(0o600), OK),
        (seen(0o400), OK),
        (seen(0o640), BROKEN),
        (seen(0o604), BROKEN),
        (seen(0o602), BROKEN),
        (seen(0o700, is_folder=True), OK),
        (seen(0o750, is_folder=True), BROKEN),
        (seen(0o711, is_folder=True), BROKEN),
        (seen(0o711, is_folder=True, may_be_passed=True), OK),
        (seen(0o600, owner=7), WARNING),
        (seen(0o600, owner=0), OK),
    ]
    for file, status in cases:
        with subtests.test(msg=f"{file!r}, {status!r}"):
            (found,) = permissions.file_findings([file], us=1000, what="here")
            assert found.status is status


def test_what_to_do_about_a_mode_can_be_pasted() -> None:
    assert permissions.file_findings([seen(0o644)], us=1000, what="here")[0].do == "chmod 600 'a file'"


def test_secrets_that_are_the_same_or_were_made_by_no_chance_are_named_and_never_shown() -> None:
    key = b"0123456789abcdef0123456789abcdef"
    found = settings.secret_findings(
        {"LUMINET_PEPPER": key, "LUMINET_MASTER_KEY": key, "LUMINET_SIGNING_KEY": b"\0" * 32}
    )
    assert statuses(found) == [BROKEN, BROKEN]
    said = " ".join(f"{one.says} {one.do}" for one in found)
    assert "LUMINET_MASTER_KEY and LUMINET_PEPPER are the same" in said
    assert "LUMINET_SIGNING_KEY can be guessed" in said
    assert key.decode() not in said
    assert statuses(settings.secret_findings({"A": bytes(range(32)), "B": bytes(range(1, 33))})) == [OK]


def test_every_malformed_setting_is_a_finding() -> None:
    bad = [BadSetting("LUMINET_PEPPER", "is not base64"), BadSetting("LUMINET_WEB_PORT", "'x' is no number")]
    assert [one.name for one in settings.setting_findings(bad)] == ["LUMINET_PEPPER", "LUMINET_WEB_PORT"]
    assert statuses(settings.setting_findings([])) == [OK]


@pytest.mark.parametrize(
    ("opened", "closed", "last", "status"), [(3, 0, 0, OK), (0, 0, 0, NOTE), (3, 0, 2, WARNING), (2, 1, 0, BROKEN)]
)
def test_a_master_key_that_opens_nothing_is_broken(opened: int, closed: int, last: int, status: Status) -> None:
    assert settings.master_key_finding(opened, closed, last).status is status


# Clocks, room, GPU, ports.


@pytest.mark.parametrize(
    ("ahead", "status"), [(0.0, OK), (-4.9, OK), (6.0, WARNING), (-31.0, BROKEN), (7200.0, BROKEN)]
)
def test_clocks_that_are_apart_are_told(ahead: float, status: Status) -> None:
    found = clock.clock_finding("the database", ahead)
    assert found.status is status
    if status is not OK:
        assert ("ahead of" if ahead > 0 else "behind") in found.says


def disk(free: int, total: int, free_inodes: int = 0, inodes: int = 0) -> list[Finding]:
    space = os.statvfs_result((1, 1, total, free, free, inodes, free_inodes, free_inodes, 0, 255))
    return [*machine.disk_findings("/", "data", space)]


@pytest.mark.parametrize(
    ("free", "total", "status"),
    [
        (100 * GIB, 200 * GIB, OK),
        (9 * GIB, 200 * GIB, WARNING),
        (GIB, 100 * GIB, WARNING),
        (200_000_000, 200 * GIB, BROKEN),
    ],
)
def test_a_disk_that_is_nearly_full_is_told(free: int, total: int, status: Status) -> None:
    assert statuses(disk(free, total)) == [status]


def test_a_disk_without_inodes_is_told_beside_its_space() -> None:
    assert statuses(disk(9 * GIB, 10 * GIB, 40_000, 1_000_000)) == [OK, WARNING]
    assert statuses(disk(9 * GIB, 10 * GIB, 10, 1_000_000)) == [OK, BROKEN]


def test_pools_that_are_larger_than_the_containers_memory_are_told() -> None:
    fits = machine.MemorySeen(16 * GIB, 8 * GIB, limit_bytes=8 * GIB, pools_bytes=4 * GIB)
    found = [*machine.memory_findings(fits)]
    assert statuses(found) == [OK, OK]
    assert "container" in found[0].says
    too_large = machine.MemorySeen(16 * GIB, 8 * GIB, limit_bytes=4 * GIB, pools_bytes=4 * GIB)
    assert statuses(machine.memory_findings(too_large)) == [OK, WARNING]
    swapping = machine.MemorySeen(16 * GIB, GIB // 2, swap_used_bytes=3 * GIB, swap_total_bytes=4 * GIB)
    assert statuses(machine.memory_findings(swapping)) == [WARNING, WARNING]


def test_few_open_files_are_a_note_and_very_few_a_warning() -> None:
    assert [machine.open_files_finding(one).status for one in (65_536, 1024, 256)] == [OK, NOTE, WARNING]


def device(name: str, *capability: int, free: int, total: int) -> dict[str, Any]:
    return {"name": name, "capability": [*capability], "free_bytes": free * GIB, "total_bytes": total * GIB}


H100 = device("H100", 9, 0, free=70, total=80)


def graphics(**more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "driver": "580.1", "has_device_files": True, "torch": "2.13.0", "torch_cuda": "13.0", "why_no_cuda": None,
        "devices": [H100], "architectures": ["sm_80", "sm_90"], "triton": "3.6.0",
    }  # fmt: skip
    return facts | more


def test_no_gpu_is_no_warning() -> None:
    (found,) = gpu.gpu_findings(graphics(driver=None, has_device_files=False, devices=[], torch_cuda=None))
    assert found.status is NOTE


def test_a_gpu_that_cannot_be_used_says_why() -> None:
    assert statuses(gpu.gpu_findings(graphics())) == [OK, OK]
    assert statuses(gpu.gpu_findings(graphics(torch_cuda=None, devices=[]))) == [WARNING]
    old_driver = gpu.gpu_findings(graphics(devices=[], why_no_cuda="the driver is too old"))
    assert (statuses(old_driver), "the driver is too old" in old_driver[0].says) == ([BROKEN], True)
    assert statuses(gpu.gpu_findings(graphics(devices=[device("P100", 6, 0, free=1, total=1)]))) == [BROKEN]
    assert BROKEN in statuses(gpu.gpu_findings(graphics(triton=None)))
    assert BROKEN in statuses(gpu.gpu_findings(graphics(architectures=["sm_75"])))
    assert BROKEN not in statuses(gpu.gpu_findings(graphics(architectures=["sm_75", "compute_75"])))


def test_kernels_without_a_compiler_are_a_warning_where_nothing_else_computes() -> None:
    why = "torch: no C compiler here (cc, gcc, clang)"
    assert gpu.native_finding("C, by cc 12", has_gpu=False).status is OK
    assert gpu.native_finding(why, has_gpu=False).status is WARNING
    assert gpu.native_finding(why, has_gpu=True).status is NOTE


def port(problem: int | None = errno.EADDRINUSE, **more: Any) -> stack.PortSeen:
    error = None if problem is None else OSError(problem, os.strerror(problem))
    return stack.PortSeen(Listener("web", "h", 8000, "LUMINET_WEB_PORT"), error, **more)


def test_a_port_is_free_ours_or_somebody_elses_who_is_named() -> None:
    assert statuses(stack.port_findings([port(None)], runs=False)) == [OK]
    assert statuses(stack.port_findings([port(is_ours=True)], runs=True)) == [OK]
    (found,) = stack.port_findings([port(holder="nginx (process 12)")], runs=False)
    assert (found.status, found.do) == (BROKEN, "stop that, or LUMINET_WEB_PORT=8010 make up")
    assert "nginx (process 12)" in found.says
    assert statuses(stack.port_findings([port()], runs=False)) == [BROKEN]
    (found,) = stack.port_findings([port(errno.EACCES)], runs=False)
    assert (found.status, found.says.endswith(": permission denied")) == (BROKEN, True)


# The fleet.


def agent(**more: Any) -> dict[str, Any]:
    view = {
        "id": "agent-1",
        "kind": "engine",
        "state": "ready",
        "in_sync": True,
        "why": None,
        "conditions": {},
        "spooled": 0,
    }
    return {**view, **more}


def test_an_agent_that_is_not_well_is_named_with_its_reason(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], Status]] = [
        (agent(), OK),
        (agent(state="stale", why="nothing heard of it"), BROKEN),
        (agent(state="down", why="the engine is down"), BROKEN),
        (agent(state="enrolled"), WARNING),
        (agent(state="draining"), NOTE),
        (agent(in_sync=False), NOTE),
        (agent(in_sync=False, conditions={"rejected": {"why": "it cannot hold"}}), BROKEN),
        (agent(in_sync=False, conditions={"behind": {"why": "it holds another"}}), WARNING),
        (agent(conditions={"clock_skew": {"why": "its clock is 10 min ahead"}}), WARNING),
        (agent(spooled=5000), WARNING),
    ]
    for view, status in cases:
        with subtests.test(msg=case_name(view, status)):
            (found,) = fleet.agent_findings([view])
            assert found.status is status
            if status is not OK:
                assert found.name == "agent-1"


def test_a_fleet_of_nobody_is_warned_of_and_a_sick_large_one_is_told_in_a_few_lines() -> None:
    assert statuses(fleet.agent_findings([])) == [WARNING]
    found = [*fleet.agent_findings([agent(id=f"agent-{number}", state="stale") for number in range(300)])]
    assert len(found) == fleet.MOST_NAMED + 1
    assert "290 more findings" in found[-1].says


def rollout(**more: Any) -> dict[str, Any]:
    view = {
        "id": "r",
        "place": "acme",
        "revision": 2,
        "state": "running",
        "why": "w",
        "bake_seconds": 60,
        "step_began_at": NOW,
    }
    return {**view, **more}


def test_rollouts_that_wait_are_told() -> None:
    assert statuses(fleet.rollout_findings([rollout(), rollout(state="done")], now=NOW)) == [OK]
    assert statuses(fleet.rollout_findings([rollout(state="paused")], now=NOW)) == [WARNING]
    late = rollout(step_began_at="2026-11-28T11:00:00Z")
    assert statuses(fleet.rollout_findings([late], now=NOW)) == [WARNING]


def test_a_model_that_nobody_may_serve_as_the_fleet_asks_is_a_warning() -> None:
    assert statuses([fleet.format_finding("m", "fp8", None)]) == [OK]
    found = fleet.format_finding("m", "fp8", "fp8 was not measured on m")
    assert (found.status, "get 400: fp8 was not measured" in found.says) == (WARNING, True)


def test_join_tokens_that_end_soon_are_a_note() -> None:
    soon = {"state": "open", "expires_at": "2026-11-28T18:00:00Z"}
    later = {"state": "open", "expires_at": NOW + timedelta(days=9)}
    assert fleet.join_token_finding([soon, later], now=NOW).status is NOTE
    assert fleet.join_token_finding([later], now=NOW).status is OK


def test_alerts_that_fire_are_warnings_unless_somebody_looks_after_them() -> None:
    fires = {
        "id": "1",
        "state": "firing",
        "words": "The pool is full.",
        "next_step": "Give it room.",
        "acknowledged": None,
    }
    (found,) = fleet.alert_findings([fires], now=NOW)
    assert (found.status, found.do) == (WARNING, "Give it room.")
    assert statuses(fleet.alert_findings([{**fires, "acknowledged": {"by": "kim"}}], now=NOW)) == [NOTE]
    assert statuses(fleet.alert_findings([{**fires, "silenced_until": "2026-11-28T13:00:00Z"}], now=NOW)) == [NOTE]
    assert statuses(fleet.alert_findings([], now=NOW)) == [OK]


# What is stored.


def test_migrations_that_are_missing_or_take_something_away_are_broken() -> None:
    newer = [("fleet", "0003_contract_old"), ("fleet", "0004_more")]
    assert statuses(records.migration_findings([], [], [], do="x")) == [OK]
    (missing,) = records.migration_findings([("fleet", "0002")], [], [], do="luminet run migrate")
    assert (missing.status, missing.do, "fleet.0002" in missing.says) == (BROKEN, "luminet run migrate", True)
    assert statuses(records.migration_findings([], newer, newer[:1], do="x")) == [BROKEN]


def test_a_database_that_is_ahead_by_what_this_version_goes_on_with_is_a_note() -> None:
    """As in every upgrade, and on the way back (docs/upgrades.md)."""
    (ahead,) = records.migration_findings([], [("fleet", "0004_more")], [], do="x")
    assert (ahead.status, "fleet.0004_more" in ahead.says) == (NOTE, True)


def test_days_that_nobody_makes_or_drops_any_more_are_told() -> None:
    today = NOW.date()

    def told(*days: date) -> list[Status]:
        return statuses(records.day_findings({"minutes": days, "keys": days}, today, do="x"))

    day = timedelta(days=1)
    assert told(today, today + day) == [OK, OK]
    assert told(today) == [NOTE, OK]
    assert told(today - day) == [WARNING, OK]
    assert told(today - 9 * day, today, today + day) == [OK, WARNING]


def test_counts_that_do_not_agree_are_broken_unless_refused_rows_explain_it() -> None:
    difference = {"between": "engine and ledger", "place": "agent-1", "tokens": 512, "is_explained": False}

    def status(*differences: dict[str, Any], minutes: int = 1) -> Status:
        newest = {"as_of": NOW - timedelta(minutes=minutes), "compared": {"x": 3}, "differences": differences}
        return records.reconciliation_finding(newest, now=NOW, do="x").status

    assert status() is OK
    assert status(minutes=20) is BROKEN
    assert status(difference) is BROKEN
    assert status({**difference, "is_explained": True}) is WARNING
    assert records.reconciliation_finding({"as_of": None}, now=NOW, do="x").status is NOTE


# An agent's home.


def home_facts(**more: Any) -> dict[str, Any]:
    facts = {
        "kind": "engine",
        "agent": "agent-1",
        "url": "https://x",
        "home": "/agent",
        "runs": True,
        "spooled": 0,
        "status": 200,
    }
    return {**facts, **more}


def test_a_home_says_whose_it_is_and_whether_anybody_works_in_it() -> None:
    assert statuses(home.home_findings(home_facts())) == [OK, OK]
    assert statuses(home.home_findings(home_facts(runs=False))) == [OK, BROKEN]
    assert statuses(home.home_findings({"problem": "there are no credentials"})) == [BROKEN]


def test_a_home_s_logins_and_its_spool_are_judged() -> None:
    assert [home.control_plane_finding(home_facts(status=one)).status for one in (200, 304, 401, 403, 500)] == [
        OK,
        OK,
        BROKEN,
        BROKEN,
        WARNING,
    ]
    assert home.control_plane_finding(home_facts(control_plane_problem="connection refused")).status is BROKEN
    assert statuses(home.broker_findings(home_facts(broker="ok", broker_is_loose=True))) == [BROKEN]
    assert statuses(home.broker_findings(home_facts(broker="Timeout"))) == [WARNING]
    assert home.spool_finding(home_facts(spooled=3, spool_age_seconds=1.0)).status is OK
    assert home.spool_finding(home_facts(spooled=3, spool_age_seconds=900.0)).status is WARNING
