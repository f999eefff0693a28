"""What tests/suite knows of the files of tests is true: which use one stack, and how long each took."""

import json
import re

from tests.suite.files import CHECKOUT, RECORDED, TOGETHER, files_below
from tests.suite.times import BEGIN, END, PAGE, tables

E2E = [CHECKOUT / file for file in files_below(["tests/e2e"])]


def test_users_of_the_busy_stack_are_listed() -> None:
    using = {str(one.relative_to(CHECKOUT)) for one in E2E if re.search(r"\bbusy_stack\b", one.read_text())}
    assert using == set(TOGETHER["busy_stack"])


def test_users_of_the_stack_are_listed() -> None:
    def is_using(text: str) -> bool:
        """By name, or by a fixture that asks for it; a file with a stack of its own defines one."""
        return bool(re.search(r"\b(stack|page|look): |\bwindows: ", text)) and "def stack(" not in text

    using = {str(one.relative_to(CHECKOUT)) for one in E2E if is_using(one.read_text())}
    assert using >= set(TOGETHER["stack"])


def test_recorded_files_exist() -> None:
    """Those that were moved or deleted since go with a new `make durations`."""
    recorded = json.loads(RECORDED.read_text())["files"]
    assert [one for one in recorded if not (CHECKOUT / one).is_file()] == []
    assert len(recorded) > 100


def test_documentation_shows_what_was_recorded() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == tables(json.loads(RECORDED.read_text())).strip()
