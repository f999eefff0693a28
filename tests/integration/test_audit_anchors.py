"""Heads of the audit trail outside the database: what they find that the trail itself cannot show."""

import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from controlplane.alerts import anchoring
from controlplane.alerts.anchoring import BEGUN, anchor_take, anchors_seen
from controlplane.alerts.evaluating import alerts_evaluate
from controlplane.alerts.models import Alert
from controlplane.alerts.webhooks import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature
from controlplane.backups.era import era_begin
from controlplane.commands.administer import audit_check
from controlplane.doctor import records
from controlplane.settings.env import AnchorSinks
from tenants import crypto
from tenants.actor import SYSTEM
from tenants.anchor_file import anchor_append, anchors_read
from tenants.anchors import anchor_now, anchor_read, anchors_compare
from tenants.audit import audit_verify, audited
from tenants.models import AuditHead, AuditRecord
from tests.fleet.alerts import evaluated

pytestmark = pytest.mark.django_db
NEW_KEY = b"another signing key, 32 bytes !!"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this control plane's anchors are written."""
    file = tmp_path / "audit" / "anchors.jsonl"
    sinks_set(monkeypatch, file=file)
    return file


def sinks_set(monkeypatch: pytest.MonkeyPatch, **sinks: Any) -> None:
    nowhere = AnchorSinks(file=None, syslog=None, webhook=None, webhook_secret=None)
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, anchors=replace(nowhere, **sinks)))
    monkeypatch.setattr(anchoring, "_sent", {})


def anchored() -> None:
    """The head and, where that began the file, the record of its beginning."""
    for _ in range(2):
        anchor_take(timezone.now())


def record(count: int) -> None:
    for _ in range(count):
        with audited() as journal:
            journal.record(SYSTEM, "test", "the trail")


def tail_cut(after: int) -> None:
    """As the tables' owner can: the end goes, and the head goes back."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditrecord DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM tenants_auditrecord WHERE seq > %s", [after])
        cursor.execute("ALTER TABLE tenants_auditrecord ENABLE TRIGGER USER")
    last = AuditRecord.objects.get(seq=after)
    AuditHead.objects.update(seq=after, hash=bytes(last.hash))


def firing(key: str, now: datetime) -> list[str]:
    """What an evaluation now finds of a built-in rule: what it says."""
    alerts_evaluate(now=now)
    return [alert.place for alert in Alert.objects.filter(rule__built_in=key, resolved_at=None)]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_cut_tail_shows_by_the_anchor_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(5)
    anchored()
    assert firing("audit_trail_cut", timezone.now()) == []
    tail_cut(3)
    assert audit_verify().is_sound  # the weakness that anchors are for
    assert audit_check(None) == 0
    capsys.readouterr()
    assert audit_check(None, anchor_file=str(file)) == 1
    assert "records 4 to 6 are missing, which the anchor of" in capsys.readouterr().err
    assert firing("audit_trail_cut", timezone.now()) == ["the audit trail"]


def test_a_trail_grown_again_is_another(file: Path) -> None:
    record(5)
    anchor_take(timezone.now())
    tail_cut(3)
    record(9)
    assert audit_verify().is_sound
    (problem,) = anchors_seen(file).problems
    assert problem.startswith("record 5 is not the one that was anchored at ")


def test_a_cut_trail_is_not_anchored_over(file: Path) -> None:
    record(5)
    anchor_take(timezone.now())
    before = file.read_bytes()
    tail_cut(3)
    record(1)
    anchor_take(timezone.now())
    assert file.read_bytes() == before


def test_only_changed_heads_are_written(file: Path) -> None:
    record(2)
    for _ in range(3):
        anchor_take(timezone.now())
    record(1)
    anchor_take(timezone.now())
    assert [anchor_read(line).seq for line in lines(file)] == [2, 3, 4]


def test_a_restore_is_recorded_and_does_not_alert(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(3)
    anchored()  # of records 3 and 4
    record(4)
    anchor_take(timezone.now())  # of record 8
    tail_cut(5)  # what the backup had
    era_begin(now=timezone.now())
    assert audit_verify().is_sound
    now = timezone.now()
    anchor_take(now)
    assert firing("audit_trail_cut", now) == []
    assert audit_check(None, anchor_file=str(file), as_json=True) == 0
    told = json.loads(capsys.readouterr().out)["anchors"]
    assert (told["anchors"], told["set_back"], told["problems"]) == (4, 1, [])


def test_a_restore_explains_nothing_that_came_later(file: Path) -> None:
    record(3)
    anchor_take(timezone.now())
    restored = timezone.now()
    era_begin(now=restored)
    kept = AuditHead.objects.get().seq
    record(4)
    anchor_take(restored + timedelta(minutes=5))
    tail_cut(kept)
    assert audit_verify().is_sound
    assert anchors_seen(file).problems != ()


def test_a_forged_restore_explains_nothing(file: Path) -> None:
    record(5)
    anchor_take(timezone.now())
    tail_cut(3)
    after = json.dumps({"head": "3:00", "began_at": timezone.now().isoformat()})
    forged = AuditRecord.objects.get(seq=3)
    forged.seq, forged.verb, forged.after = 4, "backup.restore", after
    AuditRecord.objects.bulk_create([forged])
    AuditHead.objects.update(seq=4)
    assert anchors_seen(file).problems != ()


def test_anchors_outlive_a_change_of_the_signing_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(2)
    anchor_take(timezone.now())
    there = settings.ENVIRONMENT
    old = there.secrets.signing_key
    secrets = replace(there.secrets, signing_key=NEW_KEY, previous_signing_keys=(old,))
    try:
        monkeypatch.setattr(settings, "ENVIRONMENT", replace(there, secrets=secrets))
        crypto.purpose_key.cache_clear()
        record(1)
        anchor_take(timezone.now())
        assert len(lines(file)) == 2
        assert anchors_seen(file).problems == ()
        monkeypatch.setattr(settings, "ENVIRONMENT", replace(there, secrets=replace(secrets, previous_signing_keys=())))
        (damaged,) = anchors_read(file).damaged
        assert damaged.startswith("line 1 of ")
    finally:
        crypto.purpose_key.cache_clear()


@pytest.mark.parametrize("change", ['{"seq": 3', "not json", '{"seq": 1, "hash": "00", "at": "2026-01-01", "mac": ""}'])
def test_a_damaged_line_fires_the_alert(file: Path, change: str) -> None:
    record(2)
    anchor_take(timezone.now())
    with file.open("a") as opened:
        opened.write(f"{change}\n")
    assert firing("audit_trail_cut", timezone.now()) == ["the audit trail"]
    assert audit_check(None, anchor_file=str(file)) == 1


def test_an_edited_anchor_is_damaged(file: Path) -> None:
    record(2)
    anchor_take(timezone.now())
    told = json.loads(lines(file)[0])
    file.write_text(json.dumps({**told, "seq": 1}) + "\n")
    assert anchors_read(file).damaged == (
        f"line 1 of {file} was changed, or is of another installation or signing key",
    )


@pytest.mark.parametrize("kept", ["one byte", "a part", "all but its end"])
def test_a_line_cut_off_spoils_no_other(file: Path, caplog: pytest.LogCaptureFixture, kept: str) -> None:
    record(1)
    anchored()  # of records 1 and 2
    record(1)
    anchor_take(timezone.now())
    *before, last = file.read_bytes().splitlines(keepends=True)
    length = {"one byte": 1, "a part": 40, "all but its end": len(last) - 1}[kept]
    file.write_bytes(b"".join(before) + last[:length])  # the power failed here
    assert firing("audit_trail_cut", timezone.now()) == []
    record(1)
    for _ in range(2):
        anchor_take(timezone.now())
    read = anchors_read(file)
    is_lost = kept != "all but its end"
    assert [anchor.seq for anchor in read.anchors] == [1, 2, *([] if is_lost else [3]), 4]
    assert (read.damaged, read.is_cut_off) == ((), False)
    assert caplog.text.count("the last anchor was cut off") == is_lost
    assert firing("audit_trail_cut", timezone.now()) == []
    assert audit_check(None, anchor_file=str(file)) == 0


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Bound what this process may write, as a full disk does: a part is written without an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_half_line(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    record(1)
    anchored()
    before = file.read_bytes()
    record(1)
    with files_up_to(len(before) + 20):
        anchor_take(timezone.now())
    assert "the audit trail's head cannot be written" in caplog.text
    assert file.read_bytes() == before
    anchor_take(timezone.now())
    assert [anchor_read(line).seq for line in lines(file)] == [1, 2, 3]


def test_the_end_of_a_long_file_begins_at_a_line(file: Path) -> None:
    record(1)
    for _ in range(20):
        anchor_append(file, anchor_now(timezone.now()))
    size = len(lines(file)[0]) + 1
    for last_bytes, count in ((size * 3, 3), (size * 3 + 1, 3), (size * 3 - 1, 2), (size * 50, 20)):
        read = anchors_read(file, last_bytes=last_bytes)
        assert (len(read.anchors), read.damaged) == (count, ())


def test_an_unwritable_file_fires_both_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file, and no folder")
    file = tmp_path / "taken" / "anchors.jsonl"
    sinks_set(monkeypatch, file=file)
    record(1)
    now = timezone.now()
    anchor_take(now)
    assert "the audit trail's head cannot be written" in caplog.text
    assert firing("audit_trail_cut", now) == ["the audit trail"]
    seen = anchors_seen(file)
    assert records.anchor_finding(file, seen.problems, 0).status == "broken"
    assert not AuditRecord.objects.filter(verb=BEGUN)
    later = evaluated(now + timedelta(minutes=16), seconds=150)
    assert firing("audit_not_anchored", later) == ["the audit trail"]


def test_without_a_file_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks_set(monkeypatch)
    record(1)
    later = evaluated(timezone.now() + timedelta(hours=1), seconds=150)
    for key in ("audit_trail_cut", "audit_not_anchored"):
        assert firing(key, later) == []


def test_a_file_begun_again_is_in_the_trail(file: Path) -> None:
    record(1)
    anchor_take(timezone.now())
    file.unlink()
    anchor_take(timezone.now())
    anchored()
    assert [one.seq for one in AuditRecord.objects.filter(verb=BEGUN).order_by("seq")] == [2, 3]
    assert anchors_compare(anchors_read(file).anchors).problems == ()


def test_syslog_gets_each_head_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        sinks_set(monkeypatch, syslog=f"udp://127.0.0.1:{server.getsockname()[1]}")
        record(1)
        for _ in range(2):
            anchor_take(timezone.now())
        record(1)
        anchor_take(timezone.now())
        received = [server.recv(4096).decode() for _ in range(2)]
    assert [anchor_read(line).seq for line in received] == [1, 2]
    assert received[0].startswith("<38>luminet-audit: {")


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    received: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_a_signed_head(
    receiver: tuple[str, list[tuple[dict[str, str], bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, received = receiver
    sinks_set(monkeypatch, webhook=f"http://{place}/anchors", webhook_secret="of the receiver")
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, webhook_hosts=(place,)))
    record(1)
    anchor_take(timezone.now())
    ((headers, body),) = received
    assert headers[SIGNATURE_HEADER] == signature("of the receiver", int(headers[TIMESTAMP_HEADER]), body)
    told = json.loads(body)
    assert (told["event"], anchor_read(json.dumps(told["anchor"])).seq) == ("audit.anchor", 1)


def test_a_webhook_inside_wants_its_host_named(
    receiver: tuple[str, list[tuple[dict[str, str], bytes]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place, received = receiver
    sinks_set(monkeypatch, webhook=f"http://{place}/anchors", webhook_secret="of the receiver")
    record(1)
    anchor_take(timezone.now())
    assert received == []
    assert "the audit trail's head did not get out" in caplog.text


def test_an_unwritable_file_holds_no_other_sink_up(
    receiver: tuple[str, list[tuple[dict[str, str], bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, received = receiver
    (tmp_path / "taken").write_text("a file, and no folder")
    sinks_set(
        monkeypatch,
        file=tmp_path / "taken" / "anchors.jsonl",
        webhook=f"http://{place}/anchors",
        webhook_secret="of the receiver",
    )
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, webhook_hosts=(place,)))
    record(1)
    anchor_take(timezone.now())
    assert len(received) == 1


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_damaged_file_stops_only_itself(
    receiver: tuple[str, list[tuple[dict[str, str], bytes]]], file: Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """A trail that was cut stops every sink."""
    place, received = receiver
    record(5)
    anchor_take(timezone.now())
    with file.open("a") as opened:
        opened.write("not json\n")
    before = file.read_bytes()
    if is_cut:
        tail_cut(3)
    sinks_set(monkeypatch, file=file, webhook=f"http://{place}/anchors", webhook_secret="of the receiver")
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, webhook_hosts=(place,)))
    anchor_take(timezone.now())
    assert (len(received), file.read_bytes()) == (not is_cut, before)
