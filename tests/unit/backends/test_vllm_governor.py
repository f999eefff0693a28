"""Whose a request is, before any vLLM is asked."""

from typing import Any

import pytest

from engine_agent.backends.vllm.asked import Asked
from engine_agent.backends.vllm.flat_pages import FlatPages
from engine_agent.backends.vllm.governor import Governor, Setup
from engine_agent.engine.errors import UnknownTenant


def governor(**setup: bool) -> Governor:
    return Governor(FlatPages(range(1, 9), 1024, ("bf16",)), Setup(**setup), block_tokens=16)  # type: ignore[arg-type]


def test_a_request_that_says_not_whose_it_is_is_refused() -> None:
    with pytest.raises(UnknownTenant, match="says not whose it is"):
        governor().asked(None)


def test_behind_vllms_own_server_believed_is_who_knows_the_fronts_secret() -> None:
    stock = governor(is_stock=True)
    stock.adopt("secret")
    asked = Asked("acme", front="secret")
    assert stock.asked(asked.packed()) == asked
    forged: list[Any] = [None, {}, {"luminet": "acme"}, {"luminet": {"namespace": "acme", "nonsense": 1}}]
    for said in (*forged, Asked("acme", front="another").packed(), {"luminet": {"front": ["secret"]}}):
        with pytest.raises(UnknownTenant):
            stock.asked(said)
