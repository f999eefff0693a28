"""Files of tests that share a stack are run by one process, and the longest first; the lists of both are true."""

import re
from pathlib import Path

import pytest

from tests.order import LONGEST, TOGETHER, place_of, unit_of

CHECKOUT = Path(__file__).parents[2]
E2E = sorted((CHECKOUT / "tests" / "e2e").glob("test_*.py"))


def test_each_of_the_longest_is_there_and_named_once() -> None:
    assert [one for one in LONGEST if not (CHECKOUT / one).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_whoever_uses_the_busy_stack_is_run_with_the_others() -> None:
    using = {str(one.relative_to(CHECKOUT)) for one in E2E if re.search(r"\bbusy_stack\b", one.read_text())}
    assert using == set(TOGETHER["busy_stack"])


def test_whoever_uses_the_stack_is_run_with_the_others() -> None:
    def is_using(text: str) -> bool:
        """By name, or by a fixture that asks for it; a file with a stack of its own defines one."""
        return bool(re.search(r"\b(stack|page|look): |\bwindows: ", text)) and "def stack(" not in text

    using = {str(one.relative_to(CHECKOUT)) for one in E2E if is_using(one.read_text())}
    assert using >= set(TOGETHER["stack"])


@pytest.mark.parametrize("files", TOGETHER.values(), ids=list(TOGETHER))
def test_one_process_gets_all_that_share_a_stack_one_after_the_other(files: tuple[str, ...]) -> None:
    assert len({unit_of(f"{one}::test_x[a::b]") for one in files}) == 1
    places = [place_of(f"{one}::test_x") for one in files]
    assert places == list(range(places[0], places[0] + len(files)))


def test_all_other_files_are_units_of_their_own_and_come_last() -> None:
    other = "tests/unit/test_order_of_nothing.py::test_x"
    assert unit_of(other) == "tests/unit/test_order_of_nothing.py"
    assert place_of(other) > max(place_of(one) for one in LONGEST)
