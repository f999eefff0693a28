"""docs/http-edge.md lists every case of the edge, as it is tested, and tests that it names elsewhere are there."""

from collections import Counter

import pytest

from controlplane.settings.env import CHECKOUT
from tests.contract.test_security import POINTER, defined_in
from tests.edge.cases import CASES
from tests.edge.page import PAGE, page_with, tables


def test_page_lists_every_case_as_tested() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_with(text, tables()), "write it again: python -m tests.edge.page"


def test_case_names_are_unique() -> None:
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


def test_tests_named_on_the_page_exist() -> None:
    pointers = POINTER.findall(PAGE.read_text(encoding="utf-8"))
    assert len(pointers) > 5
    assert [pointer for pointer in pointers if pointer[1] not in defined_in(pointer[0])] == []


def test_haproxy_gives_up_root(subtests: pytest.Subtests) -> None:
    for file in ("broker/haproxy.cfg", "haproxy/luminet.cfg"):
        with subtests.test(msg=file):
            lines = (CHECKOUT / "deploy" / file).read_text(encoding="utf-8").split("\ndefaults\n")[0].splitlines()
            assert {"user haproxy", "group haproxy"} <= {line.partition("#")[0].strip() for line in lines}
