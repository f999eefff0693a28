"""A toy policy field: how it is added to a tree, and, run as a program there, what every part makes of it, as JSON."""

import base64
import json
from contextlib import suppress
from typing import Any

from tests.toys.tree import Tree

NAME = "grace_seconds"
ENTRY = """    PolicyField(
        name="grace_seconds",
        label="Grace period",
        kind="seconds",
        default=30,
        minimum=5,
        maximum=3600,
        at_most="max_age_seconds",
        help="How long a block is kept once it has expired.",
        agent="Keeps an expired block for this long.",
        enforcer="block manager",
        levels=("fleet", "organisation"),
        members_may_change=True,
        members_maximum=600,
        consequences=(Consequence("lowered", "grace_cut", "Grace is cut", "Kept for {after} s only{where}."),),
    ),
"""
ATTRIBUTE = '    grace_seconds: float = DEFAULTS["grace_seconds"]\n'


def field_added(tree: Tree) -> None:
    """By hand; `make openapi` does the rest."""
    tree.insert("engine_agent/contracts/policy_fields.py", ENTRY, before=")\n\nFIELDS: Mapping[str, PolicyField]")
    tree.insert("engine_agent/cache/policy.py", ATTRIBUTE, before="\n    def __post_init__")


def facts() -> dict[str, Any]:
    import django

    django.setup()
    return {**_validated(), **_edited(), **_previewed(), **_described(), **_obeyed()}


def _validated() -> dict[str, Any]:
    from pydantic import ValidationError

    from tenants.actor import SYSTEM
    from tenants.bounds import BUILT_IN_BOUNDS, Bounds, out_of_bounds
    from tenants.drafts import Draft, draft_contradictions
    from tenants.policy import BUILT_IN, Policy

    refused = []
    for value in (4, 3601, "30", None):
        with suppress(ValidationError):
            Policy.model_validate({NAME: value})
            continue
        refused.append(value)
    chains: dict[str, tuple[dict[str, Any], ...]] = {"fleet": (), "organisation": ({},), "namespace": ({}, {})}
    levels = {
        kind: [str(one) for one in draft_contradictions(Draft(above, {}, {NAME: 60}), [], actor=SYSTEM)]
        for kind, above in chains.items()
    }
    longer = Draft((), {}, {NAME: 60, "ttl_seconds": 20, "max_age_seconds": 50})
    return {
        "said": Policy(**{NAME: 60}).said(),
        "refused": refused,
        "default": BUILT_IN[NAME],
        "levels": levels,
        "contradictions": [one.message for one in draft_contradictions(longer, [], actor=SYSTEM)],
        "members": [one.message for one in out_of_bounds(BUILT_IN_BOUNDS, before={}, after={NAME: 900})],
        "bound": [
            one.message
            for one in out_of_bounds(Bounds.model_validate({NAME: {"max": 50}}), before={}, after={NAME: 60})
        ],
    }


def _edited() -> dict[str, Any]:
    from controlplane.dashboard.organisations.limit_forms import BoundsForm, bound_rows
    from controlplane.dashboard.policies.formats import formats
    from controlplane.dashboard.policies.forms import form_of, form_sent
    from controlplane.dashboard.policies.rows import Ground, rows
    from controlplane.dashboard.settings.rows import policy_facts
    from tenants.bounds import BUILT_IN_BOUNDS
    from tenants.policy import BUILT_IN

    def shown(chain: tuple[dict[str, Any], ...]) -> list[list[str]]:
        ground = Ground(
            chain,
            form_of(chain[-1], chain[:-1]),
            BUILT_IN_BOUNDS,
            is_operator=False,
            may_edit=True,
            pools=(),
            served=(),
            formats=formats((), (), ()),
        )
        return [[row.field.label, row.in_force, row.bound] for row in rows(ground) if row.field.name == NAME]

    sent = form_sent({NAME: ["2"], f"{NAME}-unit": ["min"]}, {})
    too_long = form_sent({NAME: ["2"], f"{NAME}-unit": ["h"]}, {})
    return {
        "form": sent.said,
        "form_problems": too_long.problems,
        "row": shown(({}, {NAME: 120})),
        "row_of_namespace": shown(({}, {}, {})),
        "settings": [[label, value] for label, value, _ in policy_facts(BUILT_IN, {}) if label == "Grace period"],
        "bounds_form": sorted(name for name in BoundsForm().fields if name.startswith(NAME)),
        "bounds_row": [words for label, words, _ in bound_rows(BUILT_IN_BOUNDS) if label == "Grace period"],
    }


def _previewed() -> dict[str, Any]:
    from controlplane.dashboard.policies.previews import WARNINGS, diff_words, said_between
    from tenants.policy import changes_between, effective_values
    from tenants.preview import effects_of, warnings_for

    changes = changes_between([{NAME: 60}], [{NAME: 10}])
    warnings = list(warnings_for(changes, effective_values([{NAME: 10}])))
    return {
        "changes": [[one.field, one.before, one.after] for one in changes],
        "effects": list(effects_of(changes)),
        "warnings": [[WARNINGS[one.code], one.message] for one in warnings],
        "diff": diff_words(said_between({NAME: 60}, {NAME: 600})),
    }


def _described() -> dict[str, Any]:
    from controlplane.api.openapi import openapi_document
    from controlplane.client.policy_help import policy_fields_help

    schemas = openapi_document()["components"]["schemas"]
    return {
        "schema": schemas["Policy"]["properties"][NAME],
        "bounds_schema": NAME in schemas["Bounds"]["properties"],
        "help": [line.split() for line in policy_fields_help().splitlines() if NAME in line],
    }


def _obeyed() -> dict[str, Any]:
    from engine_agent.backends.vllm.declarations import vllm_enforcement
    from engine_agent.contracts.protocol import policy_hash, snapshot_build
    from engine_agent.engine.errors import RejectedSnapshot
    from engine_agent.engine.held import Held, SnapshotReader
    from tenants.policy import effective_document

    def obeyed(policy: dict[str, Any]) -> Any:
        hashed = policy_hash(policy)
        key = base64.b64encode(bytes(32)).decode()
        entries: dict[str, dict[str, Any]] = {
            "org/1": {"org": "1", "slug": "acme", "state": "active", "limits": {}},
            "ns/7": {"org": "1", "slug": "chat", "epoch": 0, "key": key, "revision": 1, "policy": hashed},
        }
        reader = SnapshotReader(model="m", kv_formats=["fp8"])
        held = reader.read(snapshot_build("engine", entries, {hashed: policy}), Held.nothing())
        return getattr(held.tenants["7"].policy, NAME)

    document = effective_document([{}, {NAME: 60}, {}])
    rejected = ""
    try:
        obeyed({**document, NAME: -1})
    except RejectedSnapshot as problem:
        rejected = str(problem)
    return {
        "obeyed": obeyed(document),
        "rejected": rejected,
        "grades": [getattr(vllm_enforcement(is_gpu=is_gpu)[NAME], "grade", None) for is_gpu in (False, True)],
    }


if __name__ == "__main__":
    print(json.dumps(facts()))
