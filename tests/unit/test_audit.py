"""The audit of what is pinned: it names what is known, and never takes silence for an answer."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.audit import ci
from tests.audit.__main__ import audit
from tests.audit.exceptions import BadException, Borne, exceptions_read
from tests.audit.pins import Pin, pins_all
from tests.audit.services import Services
from tests.vllm.environment import FAILED, NOT_RUN, PASSED

TODAY = date(2026, 12, 1)
DJANGO, HTMX = Pin("PyPI", "django", "5.2.19"), Pin("npm", "htmx.org", "2.0.10")
KNOWN = {"vulnerabilities": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["9.9"], "withdrawn": None}]}
NONE: Mapping[str, Any] = {"vulnerabilities": []}
CONTROL = {"/pypi/jinja2/2.4.1/json": KNOWN}
BULK = "/-/npm/v1/security/advisories/bulk"
NPM_CONTROL = {"lodash": [{"url": "https://x/GHSA-a", "vulnerable_versions": "<4.17.16"}]}


@contextmanager
def registry(answers: Mapping[str, Any]) -> Iterator[Services]:
    """One that answers these paths, and 404 to all others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            told = answers.get(self.path)
            body = json.dumps(told).encode()
            self.send_response(200 if told is not None else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 (http.server's name)

        def log_message(self, *told: object) -> None:
            """Not to the test's output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            yield Services(address, address)
        finally:
            server.shutdown()
            thread.join()


def audited(answers: Mapping[str, Any], *pins: Pin, borne: tuple[Borne, ...] = ()) -> int:
    with registry(answers) as services:
        return audit(pins or (DJANGO,), borne, services=services, today=TODAY)


def test_what_nothing_is_known_of_passes() -> None:
    assert audited({**CONTROL, "/pypi/django/5.2.19/json": NONE}) == PASSED


def test_what_is_known_is_named_with_what_mends_it_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited({**CONTROL, "/pypi/django/5.2.19/json": KNOWN}) == FAILED
    assert "VULNERABLE: django 5.2.19: CVE-1, PYSEC-1: mended in 9.9" in capsys.readouterr().out


def test_what_was_withdrawn_is_none() -> None:
    gone = {"vulnerabilities": [{**KNOWN["vulnerabilities"][0], "withdrawn": "2026-01-01T00:00:00Z"}]}
    assert audited({**CONTROL, "/pypi/django/5.2.19/json": gone}) == PASSED


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/pypi/django/5.2.19/json": NONE},
        {"/pypi/jinja2/2.4.1/json": NONE, "/pypi/django/5.2.19/json": NONE},
        CONTROL,
        {**CONTROL, "/pypi/django/5.2.19/json": {}},
        {**CONTROL, "/pypi/django/5.2.19/json": []},
    ],
    ids=["nothing", "a mirror", "knows nothing at all", "not this one", "no list", "no object"],
)
def test_what_cannot_be_said_of_each_is_said_of_none(
    answers: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(answers) == NOT_RUN
    assert "NOTHING WAS AUDITED" in capsys.readouterr().err


def test_nobody_there_is_not_none() -> None:
    nobody = Services("http://127.0.0.1:1", "http://127.0.0.1:1")
    assert audit((DJANGO,), (), services=nobody, today=TODAY) == NOT_RUN


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (NPM_CONTROL, PASSED),
        ({**NPM_CONTROL, "htmx.org": [{"url": "https://x/GHSA-b", "vulnerable_versions": "<3"}]}, FAILED),
        ({}, NOT_RUN),
    ],
)
def test_vendored_libraries_are_asked_about_too(told: Mapping[str, Any], status: int) -> None:
    assert audited({BULK: told}, HTMX) == status


@pytest.mark.parametrize(("until", "status"), [(date(2026, 12, 1), PASSED), (date(2026, 11, 30), FAILED)])
def test_an_exception_holds_until_its_day(until: date, status: int) -> None:
    borne = (Borne("CVE-1", "django", "for this test alone, and for nothing else", until),)
    assert audited({**CONTROL, "/pypi/django/5.2.19/json": KNOWN}, borne=borne) == status


def test_an_exception_is_for_its_package_alone() -> None:
    borne = (Borne("CVE-1", "flask", "for this test alone, and for nothing else", TODAY),)
    assert audited({**CONTROL, "/pypi/django/5.2.19/json": KNOWN}, borne=borne) == FAILED


def test_an_exception_without_a_reason_or_an_end_is_none(tmp_path: Path) -> None:
    path = tmp_path / "exceptions.toml"
    for wrong in ('reason = "no"\nuntil = 2027-01-01', 'reason = "a long reason, with no day"\nuntil = "soon"'):
        path.write_text(f'[[exception]]\nid = "x"\npackage = "y"\n{wrong}\n')
        with pytest.raises(BadException, match="exception 1"):
            exceptions_read(path)
    exceptions_read()


def test_all_that_is_pinned_is_asked_about() -> None:
    found = pins_all()
    assert {("PyPI", "django"), ("PyPI", "vllm"), ("npm", "htmx.org"), ("npm", "uplot")} <= {
        (one.ecosystem, one.name) for one in found
    }
    assert len(found) > 200


@pytest.mark.parametrize(("told", "status"), [(PASSED, PASSED), (NOT_RUN, PASSED), (FAILED, FAILED), (2, FAILED)])
def test_in_ci_nothing_to_ask_fails_nothing_and_is_said(
    told: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Callable[[], int] = lambda: told  # noqa: E731
    assert ci.main(run) == status
    assert ("NO DEPENDENCY WAS AUDITED" in capsys.readouterr().err) is (told == NOT_RUN)
