"""Every policy field has a grade on every backend, and docs/enforcement.md has the same grades."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from controlplane.dashboard.policies.enforcement_words import LABELS
from engine_agent.backends.paged.declarations import paged_enforcement
from engine_agent.backends.registry import backend_names
from engine_agent.backends.vllm.declarations import vllm_enforcement
from engine_agent.cache.policy import POLICY_FIELDS
from engine_agent.contracts.enforcement import DECLARED_FIELDS, DERIVED_FIELDS, VALUES, Enforcement, Graded
from engine_agent.sidecar.simulated import simulated_enforcement
from tenants.policy import FIELDS, Offload

PAGE = (Path(__file__).parents[2] / "docs" / "enforcement.md").read_text()
BACKENDS: Mapping[str, Enforcement] = {
    "paged, with a host pool": paged_enforcement(host_pool_bytes=1, host_formats=["fp8"], kv_formats=["fp8"]),
    "paged, without": paged_enforcement(host_pool_bytes=0, host_formats=[], kv_formats=["fp8"]),
    "vLLM on a CPU": vllm_enforcement(is_gpu=False),
    "vLLM on a GPU": vllm_enforcement(is_gpu=True),
    "simulated": simulated_enforcement(),
}


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
        for name, graded in _flat(declared).items():
            assert bool(graded.why) == (graded.grade != "enforced"), (backend, name)


def test_documented_table_is_what_backends_declare() -> None:
    header, _, *rows = re.findall(r"^\|(.+)\|$", PAGE.partition("## Fields and backends")[2], re.MULTILINE)
    backends = [cell.strip() for cell in header.split("|")][1:]
    told = {
        cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in (row.split("|") for row in rows)
    }
    assert backends == [*BACKENDS]
    assert told == {
        name: [_flat(declared)[name].grade.replace("_", " ") for declared in BACKENDS.values()]
        for name in _flat(BACKENDS["simulated"])
    }


def _flat(declared: Enforcement) -> dict[str, Any]:
    found: dict[str, Graded] = {}
    for name, graded in declared.items():
        found |= (
            {name: graded} if isinstance(graded, Graded) else {f"{name}: {value}": one for value, one in graded.items()}
        )
    return found
