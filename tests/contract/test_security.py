"""What docs/security.md claims, a test holds: each claim names one, and each that is named is there."""

import ast
import re
from functools import cache

import pytest

from controlplane.settings.env import CHECKOUT

PAGE = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")
POINTER = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FEWEST_CLAIMS, FEWEST_FACES = 40, 18


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


CLAIMS = [line for line in section("What is claimed").splitlines() if line.startswith("- ")]
FACES = [line for line in section("Random input at every entry point").splitlines() if line.startswith("| ")][1:]
POINTERS = sorted(set(POINTER.findall(PAGE)))


@cache
def defined_in(file: str) -> frozenset[str]:
    """Names of the tests of a file. They stand at its top level: to look below that takes most of the time."""
    tree = ast.parse((CHECKOUT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_claim_and_no_face_is_without_a_test() -> None:
    assert len(CLAIMS) >= FEWEST_CLAIMS
    assert len(FACES) >= FEWEST_FACES
    assert [line for line in (*CLAIMS, *FACES) if not POINTER.search(line)] == []


def test_a_claim_is_one_sentence_and_then_its_tests() -> None:
    sentences = [line[2:].split(" `tests/")[0] for line in CLAIMS]
    assert [one for one in sentences if not one.endswith(".") or ". " in one] == []


def test_every_test_that_is_named_is_there(subtests: pytest.Subtests) -> None:
    for file, name in POINTERS:
        with subtests.test(msg=f"{file}::{name}"):
            assert (CHECKOUT / file).exists(), file
            assert name in defined_in(file)


def test_what_is_not_claimed_is_said() -> None:
    told = section("What is not claimed").lower()
    for word in ("legal erasure", "timing", "side channels", "denial of service", "operators", "compromised gateway"):
        assert word in told, word
