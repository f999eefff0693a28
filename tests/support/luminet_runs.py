"""The `luminet` command in this process, as an operator at a terminal or in a pipeline."""

import sys
from collections.abc import Callable

import pytest
from pytest_django.live_server_helper import LiveServer

from controlplane.cli import main
from tests.database.factories import make_operator
from tests.web.api import make_operator_token

Run = Callable[..., tuple[int, str, str]]


class Typed:
    """Somebody at a terminal."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._lines.pop(0) + "\n" if self._lines else ""


def luminet_runner(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command as an operator, or with another token; returns its status, what it printed, and its errors."""
    monkeypatch.setenv("LUMINET_URL", live_server.url)
    monkeypatch.setenv("LUMINET_TOKEN", make_operator_token(make_operator()))

    def run(*arguments: str, typed: str | None = None, token: str | None = None) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            if token is not None:
                patch.setenv("LUMINET_TOKEN", token)
            if typed is not None:
                patch.setattr(sys, "stdin", Typed(typed))
            status = main(arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run
