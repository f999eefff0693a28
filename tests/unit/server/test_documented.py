"""docs/engine.md says of every field whether it is taken or refused, and names every metric."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine_agent.server.metrics import Observer
from engine_agent.server.schemas import ChatRequest, CompletionRequest, StreamOptions
from engine_agent.server.unsupported import CHAT, COMPLETIONS
from tests.unit.server.scripted import STATS

PAGE = (Path(__file__).parents[3] / "docs" / "engine.md").read_text()
NAMED = set(re.findall(r"`([a-z_:]+)`", PAGE))
ABOUT_STREAMS = StreamOptions.model_fields.keys() - {"include_obfuscation"}  # which can only be false


@pytest.mark.parametrize("fields", [ChatRequest.model_fields, CompletionRequest.model_fields, ABOUT_STREAMS])
def test_every_field_that_is_taken_is_documented(fields: Iterable[str]) -> None:
    assert set(fields) - NAMED == set()


@pytest.mark.parametrize("table", [CHAT, COMPLETIONS])
def test_every_field_that_is_refused_is_documented(table: Iterable[str]) -> None:
    assert set(table) - NAMED == set()


def test_every_metric_is_documented() -> None:
    text = Observer("tiny").exposition(STATS, journal_bytes=0).decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in names if not name.endswith("_created")} - NAMED == set()
