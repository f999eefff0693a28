"""A policy field is added in one place: a toy field in a copy of the tree works everywhere, and touches few files."""

import json
from typing import Any

import pytest

from tests.toys.policy_field import NAME, field_added
from tests.toys.tree import Tree

MOST_FILES = 5
STRICT = ("-W", "error", "-m")
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.settings"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    copy = Tree.copied(tmp_path_factory.mktemp("tree"))
    field_added(copy)
    for generator in ("tests.web.openapi", "tests.support.policy_docs"):
        copy.python(*STRICT, generator, **SETTINGS)
    return copy


@pytest.fixture(scope="module")
def toy(tree: Tree) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(tree.python(*STRICT, "tests.toys.policy_field", **SETTINGS))
    return facts


def test_toy_field_touches_few_files(tree: Tree) -> None:
    touched = tree.changed()
    assert touched == [
        "docs/openapi.json",
        "docs/policies.md",
        "engine_agent/cache/policy.py",
        "engine_agent/contracts/policy_fields.py",
    ]
    assert len([*touched, "CHANGELOG.md"]) <= MOST_FILES


def test_toy_field_is_validated(toy: dict[str, Any]) -> None:
    assert toy["said"] == {NAME: 60}
    assert toy["default"] == 30
    assert toy["refused"] == [4, 3601, "30", None]
    assert toy["contradictions"] == ["60 s is longer than max_age_seconds, which is 50 s"]


def test_toy_field_has_levels(toy: dict[str, Any]) -> None:
    assert (toy["levels"]["fleet"], toy["levels"]["organisation"]) == ([], [])
    (problem,) = toy["levels"]["namespace"]
    assert "cannot be set for a namespace, only for: fleet or organisation" in problem


def test_toy_field_is_bounded_for_members(toy: dict[str, Any]) -> None:
    assert toy["members"] == ["900 is more than 600, the most you may choose"]
    assert toy["bound"] == ["60 is more than 50, the most you may choose"]
    assert toy["bounds_form"] == [f"{NAME}__{end}" for end in ("max", "may", "min")]
    assert toy["bounds_row"] == ["5 s to 10 min"]


def test_toy_field_is_in_the_editor(toy: dict[str, Any]) -> None:
    assert toy["form"] == {NAME: 120}
    assert toy["form_problems"] == {NAME: ["2 h is more than 1 h, the most there is."]}
    assert toy["row"] == [["Grace period", "2 min", "Your operator lets you choose 5 s to 10 min."]]
    assert toy["row_of_namespace"] == []
    assert toy["settings"] == [["Grace period", "30 s"]]


def test_toy_field_is_previewed(toy: dict[str, Any]) -> None:
    assert toy["changes"] == [[NAME, 60, 10]]
    assert toy["effects"] == [f"{NAME}: 1 min → 10 s"]
    assert toy["warnings"] == [["Grace is cut", "Kept for 10 s only."]]
    assert toy["diff"] == ["Grace period: 1 min → 10 min"]


def test_toy_field_is_in_rest_and_help(toy: dict[str, Any], tree: Tree) -> None:
    schema = toy["schema"]
    assert (schema["type"], schema["minimum"], schema["maximum"]) == ("integer", 5, 3600)
    assert schema["description"].startswith("How long a block is kept once it has expired.")
    assert toy["bounds_schema"]
    assert toy["help"] == [[NAME, "Grace", "period", "(5", "to", "3,600)"]]
    assert f"{NAME} " in tree.python(*STRICT, "controlplane.cli", "plan", "--help", **SETTINGS)


def test_toy_field_reaches_the_agent(toy: dict[str, Any]) -> None:
    assert toy["obeyed"] == 60
    assert toy["rejected"].startswith(f"ns/7.policy: {NAME}")
    assert toy["grades"] == ["enforced", "untested"]


def test_contracts_hold_with_the_toy_field(tree: Tree) -> None:
    tests = ("tests/contract/test_enforcement.py", "tests/contract/test_engine_documentation.py")
    assert "passed" in tree.python(*STRICT, "pytest", "-q", "-p", "no:cacheprovider", *tests, **SETTINGS)
