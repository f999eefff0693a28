"""What reaches the logs when something goes wrong behind a one-time link: everything but its secret."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from controlplane.common.logs import SuspiciousRequests, logging_config
from tenants.actor import SYSTEM
from tenants.services.members import member_invite
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
Ask = Callable[[str, pytest.MonkeyPatch], Any]


@pytest.fixture(params=["json", "text"])
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What our own handler writes, as `luminet run web` configures it."""
    configured = logging_config(log_format=request.param, level="DEBUG")
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(configured["formatters"]["line"]["()"]())
    handler.addFilter(configured["filters"]["suspicious"]["()"]())
    root, names = logging.getLogger(), ("", "django", "django.request", "django.security", "luminet.web")
    before = {name: logging.getLogger(name).level for name in names}
    others, root.handlers = root.handlers, [handler]  # a filter changes a record for every handler after it
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield handler.stream
    root.handlers = others
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def invited() -> str:
    organisation = make_organisation()
    return member_invite(actor=SYSTEM, organisation=organisation, email="ada@acme.example", role="viewer")[1].path


def forged(path: str, _: pytest.MonkeyPatch) -> Any:
    return Client(enforce_csrf_checks=True).post(path, {"new": "x"})


def failing(error: type[Exception]) -> Ask:
    def ask(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            raise error(f"while looking at {path}")

        monkeypatch.setattr("controlplane.dashboard.accounts.links.link_open", fail)
        return Client(raise_request_exception=False).get(path)

    return ask


def misdirected(path: str, _: pytest.MonkeyPatch) -> Any:
    return Client().get(path, headers={"host": "evil.example"})


def test_foreign_host_writes_one_short_line(lines: io.StringIO) -> None:
    logging.getLogger("django").setLevel(logging.INFO)  # templates say more to who debugs them
    for number in range(5):
        assert Client().get("/sign-in", headers={"host": f"{number}evil.example" + "x" * 3_000}).status_code == 400
    written = [line for line in lines.getvalue().splitlines() if "evil.example" in line]
    assert len(written) == 1
    assert "0evil.example" in written[0]
    assert len(written[0]) < 600
    assert "Traceback" not in lines.getvalue()


def test_suspicious_requests_of_a_minute_are_counted() -> None:
    now = [0.0]
    limit, written = SuspiciousRequests(clock=lambda: now[0]), list[logging.LogRecord]()
    for second in (0, 1, 59, 60, 61, 200):
        now[0] = second
        record = suspicious("django.security.DisallowedHost")
        written += [record] if limit.filter(record) else []
    assert [vars(record)["left_out"] for record in written] == [0, 2, 1]
    assert limit.filter(suspicious("django.security.TooManyFieldsSent")), "each kind has a line of its own"
    assert limit.filter(suspicious("luminet.web"))


def suspicious(logger: str) -> logging.LogRecord:
    problem = ValueError("no")
    return logging.LogRecord(logger, logging.ERROR, "", 0, "no", (), (ValueError, problem, None))


def with_a_slash_too_many(path: str, _: pytest.MonkeyPatch) -> Any:
    return Client().get(f"{path}/")


@pytest.mark.parametrize(
    ("ask", "status", "told"),
    [
        (forged, 403, "Forbidden"),
        (failing(RuntimeError), 500, "RuntimeError"),
        (failing(OperationalError), 503, "OperationalError"),
        (misdirected, 400, "evil.example"),
        (with_a_slash_too_many, 404, "Not Found"),
    ],
    ids=["403", "500", "503", "wrong host", "404"],
)
def test_no_log_line_holds_a_secret_that_still_lets_somebody_in(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch, ask: Ask, status: int, told: str
) -> None:
    path = invited()
    assert ask(path, monkeypatch).status_code == status
    written = lines.getvalue()
    assert told in written
    assert "/invitation/…" in written
    assert path.rpartition("/")[2] not in written


def test_a_line_of_json_stays_one_whatever_is_taken_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = logging_config(log_format="json", level="DEBUG")
    formatter = configured["formatters"]["line"]["()"]()
    for message in ('"/reset/abc"', "/reset/abc\n\t/reset/def", "C:\\/reset/abc\\", '{"next": "/reset/abc"}'):
        record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "name": "x"})
        assert "abc" not in json.loads(formatter.format(record))["event"]
