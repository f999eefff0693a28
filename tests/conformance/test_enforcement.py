"""What an engine with a host pool declares of `offload` is true; test_engine.py has one without."""

from collections.abc import Iterator

import pytest

from tests.conformance.fleet_engine import FleetEngine, displaced, fleet_engine, offload_grades


@pytest.fixture(scope="module")
def with_host_pool() -> Iterator[FleetEngine]:
    with fleet_engine("paged", "--host-pool", "64MiB") as running:
        yield running


def test_declared_host_tier_brings_blocks_back(with_host_pool: FleetEngine) -> None:
    agent = with_host_pool
    assert offload_grades(agent) == {"none": "enforced", "host": "enforced", "disk": "refused"}
    agent.govern(kept={"offload": "host", "limit_share": 0.05}, lost={"offload": "none", "limit_share": 0.05})
    kept, lost = agent.fresh(4), agent.fresh(4)
    displaced(agent, "lost", lost)
    displaced(agent, "kept", kept)
    assert agent.cached("kept", kept) == 4 * agent.block
    assert agent.cached("lost", lost) == 0
