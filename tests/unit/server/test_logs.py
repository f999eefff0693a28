"""Log lines: one each, whatever a client sent."""

import logging
import sys

from engine_agent.process.logs import TextLines


def logged(problem: Exception) -> str:
    try:
        raise problem
    except ValueError:
        record = logging.LogRecord("engine", logging.ERROR, "", 0, "it %s", ("failed\\n",), sys.exc_info())
    return TextLines().format(record)


def test_an_errors_own_words_forge_no_line_and_steer_no_terminal() -> None:
    text = logged(ValueError("\x1b[2Jbad\r12:00:00 info    all is well\n12:00:00 info    and so is this"))
    first, *others = text.split("\n")
    assert " error   it failed" in first
    assert all(line.startswith("  ") for line in others)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "and so is this" in text
