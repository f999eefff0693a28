"""Anchors of the audit trail: each minute, writes the trail's head to file, syslog and webhook if it has changed.

The trail is first compared with the file. While it does not fit, nothing is written and the alert fires, so a truncated
trail is never anchored over. While only the file is damaged, only syslog and webhook get the head.
"""

import json
import logging
import logging.handlers
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from controlplane.alerts.webhooks import NotAllowed, NotTaken, Policy, send
from controlplane.settings.env import AnchorSinks
from tenants.actor import SYSTEM
from tenants.anchor_file import TAIL_BYTES, Lines, anchor_append, anchors_read
from tenants.anchors import Anchor, anchor_line, anchor_now, anchors_compare, unanchored_since
from tenants.audit import audited

log = logging.getLogger("luminet.audit.anchors")
BEGUN: Final = "audit.anchors_begun"


@dataclass(frozen=True, slots=True)
class Anchored:
    """The state of the file. `problems`: one sentence for each mismatch. `since`: time of the oldest record not in
    it."""

    problems: tuple[str, ...]
    since: datetime | None
    has_begun: bool = False


_sent: dict[str, int] = {}  # by sink: the sequence number of the head that this process sent last


def anchors_seen(file: Path) -> Anchored:
    """Compare the trail with the newest anchors of the file."""
    try:
        lines = anchors_read(file, last_bytes=TAIL_BYTES)
    except OSError as error:
        return Anchored((f"{file} cannot be read: {error.strerror}",), unanchored_since(None))
    return Anchored(_problems(lines), unanchored_since(lines.last), lines.last is not None)


def _problems(lines: Lines) -> tuple[str, ...]:
    return (*lines.damaged, *anchors_compare(lines.anchors).problems)


def anchor_take(now: datetime) -> None:
    """Write the head to every configured sink. Failures are logged, and the next run tries again."""
    sinks: AnchorSinks = settings.ENVIRONMENT.anchors
    if sinks.file is not None and not _file_take(sinks.file, now):
        return  # do not publish the head of a truncated trail
    anchor = anchor_now(now)
    for name, sink, send_to in (("syslog", sinks.syslog, _syslog_send), ("webhook", sinks.webhook, _webhook_send)):
        if sink is not None and _sent.get(name) != anchor.seq:
            _sink_take(name, partial(send_to, sink, anchor), anchor)


def _file_take(file: Path, now: datetime) -> bool:
    """Write the head into the file unless the file is damaged. Return whether the trail fits the file's anchors."""
    try:
        lines = anchors_read(file, last_bytes=TAIL_BYTES)
        if problems := anchors_compare(lines.anchors).problems:
            log.error("the audit trail does not fit its anchors", extra={"problems": problems[:5]})
            return False
        if lines.damaged:
            extra = {"file": str(file), "problems": lines.damaged[:5]}
            log.error("the file of anchors is damaged: nothing is written to it until it is moved away", extra=extra)
        else:
            _head_append(file, lines, now)
    except OSError as error:
        log.error("the audit trail's head cannot be written", extra={"file": str(file), "reason": error.strerror})
    return True


def _head_append(file: Path, lines: Lines, now: datetime) -> None:
    if lines.is_cut_off:
        log.warning("the last anchor was cut off while it was written: the next follows it", extra={"file": str(file)})
    anchor, last = anchor_now(now), lines.last
    if last is None or lines.is_cut_off or (last.seq, last.hash) != (anchor.seq, anchor.hash):
        anchor_append(file, anchor)
    if last is None:
        with audited() as journal:  # a new file is recorded, because an old one may have been lost
            journal.record(SYSTEM, BEGUN, "the audit trail", after={"file": str(file)})


def _sink_take(name: str, send_anchor: Callable[[], None], anchor: Anchor) -> None:
    try:
        send_anchor()
    except (OSError, NotTaken, NotAllowed) as error:
        log.error("the audit trail's head did not get out", extra={"sink": name, "reason": str(error)})
    else:
        _sent[name] = anchor.seq


class _Syslog(logging.handlers.SysLogHandler):
    append_nul = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        raise  # noqa: PLE0704  # the exception that `emit` has just caught


def _syslog_send(sink: str, anchor: Anchor) -> None:
    parts = urlsplit(sink)
    address = parts.path if parts.scheme == "unix" else (parts.hostname or "", parts.port or 514)
    handler = _Syslog(address, _Syslog.LOG_AUTH)
    handler.ident = "luminet-audit: "
    try:
        handler.emit(logging.makeLogRecord({"msg": anchor_line(anchor), "levelname": "INFO"}))
    finally:
        handler.close()


def _webhook_send(url: str, anchor: Anchor) -> None:
    secret = settings.ENVIRONMENT.anchors.webhook_secret or ""
    body = json.dumps({"event": "audit.anchor", "anchor": json.loads(anchor_line(anchor))}).encode()
    policy = Policy(by_operator=True, hosts=settings.ENVIRONMENT.webhook_hosts)
    delivery, timestamp = str(uuid.uuid4()), int(anchor.at.timestamp())
    send(url, body, secret=secret, delivery=delivery, timestamp=timestamp, policy=policy)
