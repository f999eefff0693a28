import json
import logging
import sys
from typing import Any

import pytest

from controlplane.common.logs import JsonFormatter, TextFormatter
from controlplane.common.request_id import request_id_accept, request_id_bound, request_id_current


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "levelname": "INFO", "name": "luminet.web"})
    vars(made).update(extra)
    return made


@pytest.mark.parametrize("offered", ["a", "abc-123_4.5", "x" * 64])
def test_a_harmless_request_id_is_kept(offered: str) -> None:
    assert request_id_accept(offered) == offered


def test_any_other_request_id_is_replaced(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = [None, "", "x" * 65, "a b", "a\nb", "é", '"', "a;b", "a\n"]
    for offered in cases:
        with subtests.test(msg=repr(offered)):
            assert request_id_accept(offered) != offered
            assert len(request_id_accept(offered)) == 32


def test_a_request_id_holds_inside_its_block_only() -> None:
    with request_id_bound("outer"):
        with request_id_bound("inner"):
            assert request_id_current() == "inner"
        assert request_id_current() == "outer"
    assert request_id_current() is None


def test_a_json_line_carries_extras_and_the_request_id() -> None:
    with request_id_bound("r-1"):
        line = json.loads(JsonFormatter().format(record("request", status=200, path="/ü")))
    assert {key: line[key] for key in ("event", "status", "path", "request_id", "level")} == {
        "event": "request",
        "status": 200,
        "path": "/ü",
        "request_id": "r-1",
        "level": "info",
    }


def test_a_text_line_cannot_be_forged_by_what_people_typed() -> None:
    line = TextFormatter().format(record("request", path="/x\n12:00:00 error forged\r\x1b[2J\x9b0m"))
    assert not [letter for letter in line if ord(letter) < 32 or 127 <= ord(letter) < 160]
    assert "/x\\n12:00:00" in line


def test_a_json_line_holds_the_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = json.loads(JsonFormatter().format(record("failed", exc_info=sys.exc_info())))
    assert "ValueError: broken" in line["traceback"]
