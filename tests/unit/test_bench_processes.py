"""What rows launch: always stopped again, with what it said when it did not start; and pages that must be pages."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from tests.bench.pages import NotAnswered, Pages
from tests.bench.processes import Launched, NotStarted, launched

PARENT = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""
ENVIRONMENT = "import os; print(sorted(name for name in os.environ if name.startswith(('LUMINET_', 'MAKE'))))"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", code)


def line_of(process: Launched) -> str | None:
    text = process.log.read_text()
    return text if text.endswith("\n") else None


def test_what_a_failing_row_launched_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="row"), launched(python(PARENT), {}, log=tmp_path / "log") as process:
        raise RuntimeError("the row failed")
    assert process.process.poll() is not None


def test_stopping_waits_for_grandchildren_and_kills_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.processes.STOP_SECONDS", 0.2)
    with launched(python(PARENT), {}, log=tmp_path / "log") as process:
        grandchild = psutil.Process(int(process.wait_for(lambda: line_of(process))[0]))
        assert process.stop() >= 0.2
    gone, alive = psutil.wait_procs([grandchild], timeout=5)
    assert (len(gone), alive) == (1, [])


def test_what_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = python("import sys; sys.exit('no such database')")
    with launched(command, {}, log=tmp_path / "log") as process, pytest.raises(NotStarted) as told:
        process.wait_for(lambda: None)
    assert "ended with status 1" in str(told.value)
    assert "no such database" in str(told.value)


def test_the_callers_settings_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_DATABASE_URL", "postgresql://somebody@else/theirs")
    monkeypatch.setenv("MAKEFLAGS", "--always-make")
    with launched(python(ENVIRONMENT), {"LUMINET_HOME": "/ours"}, log=tmp_path / "log") as process:
        assert process.wait_for(lambda: line_of(process))[0] == "['LUMINET_HOME']\n"


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.headers.get("Cookie", "").encode()
        self.send_response(200 if self.path == "/" else 302)
        self.send_header("Set-Cookie", "session=abc; HttpOnly; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def site() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_cookies_are_kept_from_page_to_page(site: str) -> None:
    with Pages(site) as pages:
        assert (pages.load("/"), pages.load("/")) == (b"", b"session=abc")


def test_a_redirect_is_no_page(site: str) -> None:
    with Pages(site) as pages, pytest.raises(NotAnswered, match="GET /elsewhere: expected status 200, found 302"):
        pages.load("/elsewhere")
