"""Every policy field has a grade on every backend, and docs/policies.md has the same grades."""

import re
from typing import get_args

import pytest

from engine_agent.backends.registry import backend_names
from engine_agent.cache.policy import POLICY_FIELDS
from engine_agent.contracts.enforcement import DECLARED_FIELDS, DERIVED_FIELDS, VALUES
from engine_agent.contracts.policy_fields import LABELS, Offload
from tenants.policy import FIELDS
from tests.support.policy_docs import BACKENDS, PAGE, flat, page_text


def test_every_policy_field_is_graded() -> None:
    assert {*DECLARED_FIELDS} | {*DERIVED_FIELDS} == {*FIELDS} == {*POLICY_FIELDS} == {*LABELS}
    assert {"offload": get_args(Offload)} == VALUES


def test_every_backend_declares_every_field(subtests: pytest.Subtests) -> None:
    for backend in BACKENDS:
        with subtests.test(msg=backend):
            assert {*BACKENDS[backend]} == {*DECLARED_FIELDS}


def test_every_reported_backend_is_here() -> None:
    named = {name.partition(",")[0].partition(" ")[0].lower() for name in BACKENDS}
    assert named == {*backend_names(), "simulated"}


def test_reasons_are_given_for_all_but_enforced() -> None:
    for backend, declared in BACKENDS.items():
        for name, graded in flat(declared).items():
            assert bool(graded.why) == (graded.grade != "enforced"), (backend, name)


def test_documented_tables_are_generated() -> None:
    assert PAGE.read_text() == page_text(PAGE.read_text()), "run make openapi"


def test_documented_table_is_what_backends_declare() -> None:
    header, _, *rows = re.findall(r"^\|(.+)\|$", PAGE.read_text().partition("## Fields and backends")[2], re.MULTILINE)
    backends = [cell.strip() for cell in header.split("|")][1:]
    told = {
        cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in (row.split("|") for row in rows)
    }
    assert backends == [*BACKENDS]
    assert told == {
        name: [flat(declared)[name].grade.replace("_", " ") for declared in BACKENDS.values()]
        for name in flat(BACKENDS["simulated"])
    }
