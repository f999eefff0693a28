"""Commands and batches: what is sound travels as it is, and what is not is refused by the name of its field."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from engine_agent.contracts.protocol import MalformedMessage, canonical_json
from engine_agent.contracts.wire import (
    MOST_REPORTS,
    REPORT_KINDS,
    Batch,
    Command,
    Report,
    batch_decode,
    batch_encode,
    command_decode,
    command_encode,
)
from tests.support.case_names import case_name
from tests.support.spoiling import hit, spoiled
from tests.web.random_input import HASH, HEARTBEAT, REPORTS

COMMAND = Command("agent-1", "c-1", "apply", 3, 1.5, 31.5, {"base": None, "target": HASH, "change": "secret"})
BATCH = Batch(1.5, "spool-1", 7, REPORTS, HEARTBEAT)


def batch(**changes: Any) -> bytes:
    return json.dumps(json.loads(batch_encode(BATCH)) | changes).encode()


def test_commands_and_batches_survive_the_journey() -> None:
    assert {report.kind for report in REPORTS} == {*REPORT_KINDS}
    assert command_decode(command_encode(COMMAND)) == COMMAND
    assert batch_decode(batch_encode(BATCH)) == Batch(1.5, "spool-1", 7, list(REPORTS), HEARTBEAT)


def test_messages_are_encoded_as_before() -> None:
    report = {"kind": "refused", "told": {"what": "é"}}
    told = {"version": 1, "sent_at": 1.0, "spool": "s", "first": 1, "reports": [report], "heartbeat": None}
    assert batch_encode(Batch(1.0, "s", 1, [Report("refused", {"what": "é"})], None)) == canonical_json(told)
    body = {"base": None, "target": HASH, "change": "secret"}
    command = {"agent": "agent-1", "id": "c-1", "deed": "apply", "generation": 3, "issued_at": 1.5, "expires_at": 31.5}
    assert command_encode(COMMAND) == canonical_json({"version": 1, **command, "body": body})


def test_command_is_shown_without_its_body() -> None:
    assert "secret" not in repr(COMMAND)
    assert "agent-1" in repr(COMMAND)


def test_bad_batch_is_refused_by_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "version"),
        ({"more": 1}, "more"),
        ({"\x1b\ud800" * 90: 1}, "message"),
        ({"sent_at": True}, "sent_at"),
        ({"sent_at": 1e12}, "sent_at"),
        ({"sent_at": float("nan")}, "sent_at"),
        ({"sent_at": 10**400}, "sent_at"),
        ({"spool": "a b"}, "spool"),
        ({"spool": "a\n"}, "spool"),
        ({"spool": "x" * 65}, "spool"),
        ({"first": 0}, "first"),
        ({"first": 1.0}, "first"),
        ({"first": True}, "first"),
        ({"first": 2**63}, "first"),
        ({"first": 2**64}, "first"),
        ({"first": "1"}, "first"),
        ({"reports": {}}, "reports"),
        ({"reports": [{"kind": "about", "told": {}}] * (MOST_REPORTS + 1)}, "reports"),
        ({"reports": [{"kind": "about", "told": {}}, 7]}, "reports.1"),
        ({"reports": [{"kind": "sneeze", "told": {}}]}, "reports.0.kind"),
        ({"reports": [{"kind": "about"}]}, "reports.0.told"),
        ({"reports": [{"kind": "about", "told": []}]}, "reports.0.told"),
        ({"reports": [{"kind": "about", "told": {}, "more": 1}]}, "reports.0.more"),
        ({"heartbeat": []}, "heartbeat"),
    ]
    for changes, field in cases:
        with subtests.test(msg=case_name(changes, field)), pytest.raises(MalformedMessage) as refused:
            batch_decode(batch(**changes))
        assert refused.value.field == field
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 400


def test_bad_heartbeat_is_refused_by_field(subtests: pytest.Subtests) -> None:
    counted = HEARTBEAT["counters"]["fleet"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"boot": None}, "boot"),
        ({"sequence": -1}, "sequence"),
        ({"spooled": 2**63}, "spooled"),
        ({"more": 1}, "more"),
        ({"applied": {"hash": HASH}}, "applied.generation"),
        ({"applied": {"hash": HASH.upper(), "generation": 1}}, "applied.hash"),
        ({"engine": {**HEARTBEAT["engine"], "state": "asleep"}}, "engine.state"),
        ({"engine": {**HEARTBEAT["engine"], "why": "x" * 401}}, "engine.why"),
        ({"engine": {**HEARTBEAT["engine"], "more": 1}}, "engine.more"),
        ({"load": {"running": 1.0}}, "load.*"),
        ({"load": {str(number): 1 for number in range(20)}}, "load"),
        ({"pool": None}, "pool"),
        ({"counters": {"fleet": {**counted, "missed": {"gremlins": 1}}}}, "counters.*.missed"),
        ({"counters": {"fleet": {**counted, "ttft_buckets": counted["ttft_buckets"][1:]}}}, "counters.*.ttft_buckets"),
        ({"counters": {"fleet": {**counted, "errors": True}}}, "counters.*.errors"),
        ({"counters": {"x" * 401: counted}}, "counters"),
        ({"counters": {f"org/{number}": counted for number in range(65)}}, "counters"),
    ]
    for changes, field in cases:
        with subtests.test(msg=case_name(changes, field)), pytest.raises(MalformedMessage) as refused:
            batch_decode(batch(heartbeat={**HEARTBEAT, **changes}))
        assert refused.value.field == f"heartbeat.{field}"


def test_bad_report_is_refused_by_field(subtests: pytest.Subtests) -> None:
    sound: dict[str, Mapping[str, Any]] = {report.kind: report.told for report in REPORTS}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("usage", {"upto": None}, "upto"),
        ("usage", {"after": -1}, "after"),
        ("usage", {"born": True}, "born"),
        ("usage", {"rows": {}}, "rows"),
        ("usage", {"totals": []}, "totals"),
        ("levels", {"pool": 1}, "pool"),
        ("levels", {"preemptions": 0.0}, "preemptions"),
        ("gaps", {"boot": "/"}, "boot"),
        ("diagnostics", {"namespaces": None}, "namespaces"),
        ("canary", {"at": "noon"}, "at"),
        ("applied", {"hash": "ab"}, "hash"),
        ("rejected", {"reason": 7}, "reason"),
        ("purged", {"namespace": 1}, "namespace"),
        ("receipt", {"ok": 1}, "ok"),
        ("refused", {"reason": "disliked"}, "reason"),
    ]
    for kind, changes, field in cases:
        with subtests.test(msg=case_name(kind, changes)), pytest.raises(MalformedMessage) as refused:
            batch_decode(batch(reports=[{"kind": kind, "told": {**sound[kind], **changes}}]))
        assert refused.value.field == f"reports.0.told.{field}"


def test_bad_command_is_refused_by_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"version": "1"}, "version"),
        ({"agent": ""}, "agent"),
        ({"deed": "conquer"}, "deed"),
        ({"generation": True}, "generation"),
        ({"expires_at": None}, "expires_at"),
        ({"body": []}, "body"),
        ({"more": 1}, "more"),
    ]
    sound = json.loads(command_encode(COMMAND))
    for changes, field in cases:
        with subtests.test(msg=case_name(changes, field)), pytest.raises(MalformedMessage) as refused:
            command_decode(canonical_json(sound | changes))
        assert refused.value.field == field


@pytest.mark.parametrize(
    "message", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[" * 200_000, b"1" * 5_000, b'{"a":' * 5_000]
)
def test_no_json_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedMessage, match="message: is not JSON"):
        batch_decode(message)


def test_nan_in_a_row_leaves_its_batch_readable() -> None:
    rows = [{"minute": float("nan")}, {"model": "\ud800"}]
    told = {"boot": "b", "upto": 1, "rows": rows, "totals": {}, "lost": 0}
    (report,) = batch_decode(batch(reports=[{"kind": "usage", "told": told}])).reports
    assert repr(report.told["rows"]) == repr(rows)


def test_spoiled_batch_is_refused_or_read_as_python_reads_it() -> None:
    read = 0
    for number in range(200):
        chance = random.Random(f"wire {number}")
        good = batch_encode(Batch(1.5, "s", 1, chance.sample(REPORTS, 2), HEARTBEAT))
        body = hit(chance, good) if chance.random() < 0.3 else json.dumps(spoiled(chance, json.loads(good))).encode()
        try:
            found = batch_decode(body)
        except MalformedMessage:
            continue
        read += 1
        told = json.loads(body)
        assert repr([(one.kind, one.told) for one in found.reports]) == repr(
            [(one["kind"], one["told"]) for one in told["reports"]]
        )
        assert repr(found.heartbeat) == repr(told["heartbeat"])
    assert read > 20
