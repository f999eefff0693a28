"""What the tree in which this runs makes of the format that is named, as JSON. Run as a module."""

import json
import os
import sys
from pathlib import Path

import torch


def main(name: str) -> None:
    print(json.dumps({"kernels": _kernels(name), **_control_plane(name), **_data_plane(name)}))


def _kernels(name: str) -> dict[str, object]:
    import kernels
    from kernels.formats import kv_format_named
    from kernels.kv_write import kv_write
    from kernels.layout import PageLayout
    from kernels.paged_decode import paged_decode
    from kernels.scales import neutral_scales
    from kernels.tables import page_table, write_table
    from kernels.vectors import decode, encode

    vector = kv_format_named(name).key
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    read = decode(*encode(x, vector), vector, 32)

    layout = PageLayout(kv_format_named(name), 1, 2, 32)
    arena = torch.zeros(layout.page_bytes, dtype=torch.uint8)
    scales = neutral_scales(layout).layer(0)
    keys, values = x.view(2, 16, 2, 32)
    kv_write(arena, write_table(arena, layout, [0] * 16, range(16)), 0, keys, values, scales)
    query = torch.ones(1, 2, 32)
    means, _ = paged_decode(query, arena, page_table(arena, layout, [[0]], [16]), 0, scales)
    weights = torch.einsum("hd,thd->ht", query[0], keys).mul(32**-0.5).softmax(-1)
    exact = torch.einsum("ht,thd->hd", weights, values)
    return {
        "folder": str(Path(kernels.__file__).parents[1]),
        "round_trip": float((read - x).norm() / x.norm()),
        "attention": float((means[0] - exact).norm() / exact.norm()),
    }


def _control_plane(name: str) -> dict[str, object]:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from controlplane.dashboard.calculator.forms import CalculatorForm
    from controlplane.dashboard.organisations.limit_forms import BoundsForm
    from controlplane.dashboard.policies.fields import choices_of
    from controlplane.dashboard.policies.formats import formats
    from controlplane.fleet.about import about_read
    from engine_agent.contracts.policy_fields import FIELDS
    from kernels.calculator.asked import asked
    from kernels.calculator.calculating import calculate
    from tenants.bounds import BUILT_IN_BOUNDS, Bounds
    from tenants.policy import Policy

    answer = calculate(asked(model="llama-3.1-8b"))
    allowed = {"allowed": [name]}
    return {
        "policy": Policy(kv_dtype=name, request_kv_dtypes=[name]).said(),
        "schema": Policy.model_json_schema()["properties"]["kv_dtype"]["enum"],
        "bounds": BUILT_IN_BOUNDS.model_dump()["kv_dtype"]["allowed"],
        "own_bounds": Bounds.model_validate({"kv_dtype": allowed}).model_dump(exclude_unset=True),
        "choices": list(choices_of(FIELDS["kv_dtype"])),
        "hint": formats([], [], [])[name].what,
        "bounds_form": str(BoundsForm()),
        "calculator_form": [value for value, _ in CalculatorForm.base_fields["kv_dtype"].choices],  # type: ignore[attr-defined]
        "bytes_per_token": {row.kv_dtype: row.bytes_per_token for row in answer.rows},
        "agent": about_read({"backend": "paged", "version": "1", "kv_dtypes": [name]})["kv_dtypes"],
    }


def _data_plane(name: str) -> dict[str, object]:
    from engine_agent.sidecar.simulated import MODEL
    from engine_agent.tools.quality.gates import gate_of

    return {"simulated": MODEL["kv_dtypes"], "gate": gate_of(name).reason}


if __name__ == "__main__":
    main(sys.argv[1])
