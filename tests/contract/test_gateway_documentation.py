"""What `docs/gateway.md` says the gateway has, it has: options, refusals, metrics."""

import re
from pathlib import Path
from typing import Any

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine_agent.gateway.command import parser
from engine_agent.gateway.holding import Holding
from engine_agent.gateway.knowing.metrics import KnowingMetrics
from engine_agent.gateway.limits import Limits
from engine_agent.gateway.metrics import Observer
from engine_agent.gateway.standing import Standing
from engine_agent.http.bodies import Bodies
from engine_agent.http.serving import server_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gateway.md").read_text()
SOURCES = [path.read_text() for path in (ROOT / "engine_agent" / "gateway").glob("*.py")]
REFUSED = re.compile(r'code="([a-z_]+)"|unavailable\(.*, "([a-z_]+)"\)')


def holding() -> Holding:
    async def nobody(*heard: Any) -> None:
        """Serves nobody."""

    return Holding(Bodies(Limits(lambda: 0)), server_of(nobody))


def documented(name: str) -> bool:
    return f"`{name}`" in PAGE


def test_every_option_is_documented_and_none_that_is_not() -> None:
    options = {name for action in parser()._actions for name in action.option_strings if name.startswith("--")}
    assert {name for name in options - {"--help"} if not documented(name)} == set()
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options


def test_every_refusal_is_documented() -> None:
    codes = {one or other for source in SOURCES for one, other in REFUSED.findall(source)}
    assert {"kv_dtype_unproven", "no_engine", "suspended"} <= codes
    assert {code for code in codes if not documented(code)} == set()


async def test_every_metric_is_documented_and_none_that_is_not() -> None:
    text = Observer().exposition({"agent-1": Standing()}, [holding()]).decode()
    kinds = {"counter": "_total"}
    found = {one.name + kinds.get(one.type, "") for one in text_string_to_metric_families(text)}
    ours = {name for name in found if name.startswith("luminet_gateway_") and not name.endswith("_created")}
    assert len(ours) >= 7
    assert set(re.findall(r"`(luminet_gateway_[a-z_]+)`", PAGE)) == ours


def test_every_metric_of_what_is_known_is_documented_with_routing() -> None:
    text = generate_latest(KnowingMetrics(lambda: {"agent-1": 1}, lambda: {"agent-1": True}).registry).decode()
    told = {one.name + ("_total" if one.type == "counter" else "") for one in text_string_to_metric_families(text)}
    found = {name for name in told if not name.endswith("_created")}
    page = (ROOT / "docs" / "routing.md").read_text()
    assert len(found) == 6
    assert {name for name in found if f"`{name}`" not in page} == set()
