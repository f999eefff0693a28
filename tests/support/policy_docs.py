"""The tables of docs/policies.md, from the registry of policy fields; this module, run, writes them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine_agent.backends.paged.declarations import paged_enforcement
from engine_agent.backends.vllm.declarations import vllm_enforcement
from engine_agent.contracts.enforcement import Enforcement, Graded
from engine_agent.contracts.policy_fields import FIELDS, LEVELS, PolicyField
from engine_agent.sidecar.simulated import simulated_enforcement

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
BACKENDS: Mapping[str, Enforcement] = {
    "paged, with a host pool": paged_enforcement(host_pool_bytes=1, host_formats=["fp8"], kv_formats=["fp8"]),
    "paged, without": paged_enforcement(host_pool_bytes=0, host_formats=[], kv_formats=["fp8"]),
    "vLLM on a CPU": vllm_enforcement(is_gpu=False),
    "vLLM on a GPU": vllm_enforcement(is_gpu=True),
    "simulated": simulated_enforcement(),
}


def flat(declared: Enforcement) -> dict[str, Graded]:
    """One grade for each field, or for each value of a field that is graded by value."""
    grades: dict[str, Graded] = {}
    for name, graded in declared.items():
        by_value = {"": graded} if isinstance(graded, Graded) else graded
        grades |= {f"{name}: {value}" if value else name: grade for value, grade in by_value.items()}
    return grades


def page_text(text: str) -> str:
    """The page with its tables as the code has them."""
    text = _replaced(text, "fields", ["field", "label", "values", "default", "members", "an agent"], _field_rows())
    return _replaced(text, "backends", ["field", *BACKENDS], _backend_rows())


def _field_rows() -> Iterable[Sequence[str]]:
    for name, field in FIELDS.items():
        levels = "" if field.levels == LEVELS else f" Set for: {', '.join(field.levels)}."
        default = json.dumps(field.default)
        yield f"`{name}`", field.label, field.values, f"`{default}`", _members(field), field.agent + levels


def _members(field: PolicyField) -> str:
    if not field.members_may_change:
        return "operators only"
    return "yes" if field.members_maximum is None else f"up to {field.members_maximum:,}"


def _backend_rows() -> Iterable[Sequence[str]]:
    grades = [flat(declared) for declared in BACKENDS.values()]
    for name in grades[0]:
        yield f"`{name}`", *(graded[name].grade.replace("_", " ") for graded in grades)


def _replaced(text: str, name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(cells) for cells in (header, *rows)]
    table = "\n".join(f"| {line} |" for line in lines).replace("\n", f"\n|{'---|' * len(header)}\n", 1)
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    return re.sub(rf"(?<={begin}).*?(?={end})", lambda _: table, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {PAGE}")
