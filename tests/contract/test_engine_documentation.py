"""What `docs/engine.md` says the engine has, it has: options, paths, fields, headers, metrics, records."""

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from engine_agent.cache.policy import NamespacePolicy
from engine_agent.contracts.identity import HEADER, Identity
from engine_agent.http.headers import COUNTED
from engine_agent.journal.journal import Closed, Opened
from engine_agent.process.metrics import PROCESS
from engine_agent.server.admin import AdminFace
from engine_agent.server.command import parser
from engine_agent.server.engine_metrics import engine_families
from engine_agent.server.metrics import Observer
from engine_agent.server.schemas import ChatRequest, CompletionRequest
from engine_agent.server.unsupported import CHAT, COMPLETIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "engine.md").read_text()
POLICIES = (DOCS / "policies.md").read_text()


def missing(names: Any, page: str = PAGE) -> list[str]:
    return sorted(name for name in names if not re.search(rf"`{re.escape(name)}[`?]", page))


def test_every_option_is_documented_and_none_that_is_not() -> None:
    options = {name for action in parser()._actions for name in action.option_strings if name.startswith("--")}
    assert missing(options - {"--help"}) == []
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options


def test_every_option_has_a_word_of_help() -> None:
    assert [action.dest for action in parser()._actions if action.help in (None, argparse.SUPPRESS)] == []


def test_every_path_of_the_admin_face_is_documented() -> None:
    routes = AdminFace(None, None, agent_id="", tokenizer=None, template=None, prober=Any).app().routes  # type: ignore[arg-type]
    paths = {f"{method} {route.path}" for route in routes for method in route.methods if method != "HEAD"}  # type: ignore[attr-defined]
    assert len(paths) >= 17
    assert missing(paths) == []


def test_every_field_of_a_request_is_documented(subtests: pytest.Subtests) -> None:
    fields_of = {
        "chat": ChatRequest.model_fields,
        "completion": CompletionRequest.model_fields,
        "chat, unsupported": CHAT,
        "completion, unsupported": COMPLETIONS,
    }
    for kind, names in fields_of.items():
        with subtests.test(msg=kind):
            assert missing(names) == []


def test_every_header_is_documented() -> None:
    assert missing(COUNTED) == []
    assert f"`{HEADER}: v1." in PAGE


def test_every_field_of_a_policy_an_identity_and_a_record_is_documented(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [(NamespacePolicy, POLICIES), (Identity, PAGE), (Opened, PAGE), (Closed, PAGE)]
    for kind, page in cases:
        with subtests.test(msg=kind.__name__):
            assert missing((field.name for field in fields(kind)), page) == []


def test_every_metric_is_documented() -> None:
    pool = {"capacity_bytes": 1, "used_bytes": 0, "evictable_bytes": 0, "usage_ratio": 0.0, "waste_ratio": 0.0}
    stats: dict[str, Any] = {
        **dict.fromkeys(("running", "waiting", "preemptions", "steps", "computed_tokens"), 0),
        **{"pool": pool, "host": None, "namespaces": [], "evictions": []},
    }
    own = [*Observer("m").registry.collect(), *PROCESS.collect()]
    families = [*own, *engine_families("m", stats, journal_bytes=0)]
    assert len(families) > 20
    names = {family.name + "_total" * (family.type == "counter") for family in families}
    assert missing(names) == []
    assert set(re.findall(r"`((?:vllm:|luminet_)[a-z_]+)`", PAGE)) <= names
