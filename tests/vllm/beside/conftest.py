"""One `make up BACKENDS=paged,vllm` for all tests of a file, and the browser of the end-to-end tests."""

from collections.abc import Iterator

import pytest

from tests.conformance.fleet_engine import START_SECONDS
from tests.e2e.conftest import browser, page
from tests.e2e.stack import Stack, new_home, running_fleet

__all__ = ["browser", "page", "stack"]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Of two agents: our own engine computes in the first, vLLM in the second."""
    with new_home() as home, running_fleet(home, ready_seconds=START_SECONDS, BACKENDS="paged,vllm") as stack:
        yield stack
