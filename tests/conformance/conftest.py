"""One engine of each backend for all of these tests. vLLM's runs where it was asked for (`make test-vllm`)."""

import os
from collections.abc import Iterator

import pytest

from tests.conformance.fleet_engine import OPTIONS, FleetEngine, fleet_engine

WITH_VLLM = os.environ.get("LUMINET_TEST_VLLM") == "1"


@pytest.fixture(scope="session", params=[name for name in OPTIONS if WITH_VLLM or name != "vllm"])
def agent(request: pytest.FixtureRequest) -> Iterator[FleetEngine]:
    if request.param == "vllm":
        yield request.getfixturevalue("vllm_engine")
        return
    with fleet_engine(request.param) as running:
        yield running
