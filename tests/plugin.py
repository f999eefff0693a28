"""Loaded before anything of Django: chooses where the tests' servers listen, and starts them for who asks."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from controlplane.common.collector import collect_less_often, freeze_what_is_loaded
from controlplane.stack.services import database_url, redis_url
from tests.suite.interrupting import Interrupting
from tests.support.passwords import POSTGRES_PASSWORD, REDIS_PASSWORD
from tests.support.ports import free_port

if TYPE_CHECKING:
    from tests.conformance.fleet_engine import FleetEngine

POSTGRES_PORT = free_port()
REDIS_PORT = free_port()

os.environ["LUMINET_DATABASE_URL"] = database_url(POSTGRES_PORT, POSTGRES_PASSWORD)
os.environ["LUMINET_REDIS_URL"] = redis_url(REDIS_PORT, REDIS_PASSWORD)

# Triton decides when it is imported: its interpreter runs the kernels on the CPU's tensors, here and on a GPU machine
# alike. For the tests on a GPU: TRITON_INTERPRET=0 python -m pytest -m gpu
os.environ.setdefault("TRITON_INTERPRET", "1")

# No test judges by time: on a busy machine one example takes a second now and then, and means nothing by it.
settings.register_profile("luminet", deadline=None)
settings.load_profile("luminet")


collect_less_often()  # a tenth of the unit tests' time


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Interrupting(config))


def pytest_collection_finish() -> None:
    freeze_what_is_loaded()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """A real Redis; its URL."""
    from tests.servers.embedded import redis_running, temporary_home

    url = os.environ["LUMINET_REDIS_URL"]
    with temporary_home() as config, redis_running(config, port=REDIS_PORT, password=REDIS_PASSWORD, url=url):
        yield url


@pytest.fixture(scope="session")
def vllm_engine() -> Iterator["FleetEngine"]:
    """A real vLLM behind our server, of the whole run: it takes half a minute to start, so there is one."""
    from tests.conformance.fleet_engine import fleet_engine

    with fleet_engine("vllm") as running:
        yield running


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL 18, whose database for tests is migrated; its URL."""
    from tests.database.template import migrated_postgres

    with migrated_postgres(port=POSTGRES_PORT):
        yield os.environ["LUMINET_DATABASE_URL"]
