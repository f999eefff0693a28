"""A real web process on the test database, and the description that it serves."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.db import connection

from controlplane.common.health import web_check
from controlplane.stack.environments import Unavailable
from controlplane.stack.services import luminet
from tests.clients.__main__ import BOTH
from tests.clients.environment import NODE_CLIENTS, PYTHON_CLIENTS
from tests.database.factories import make_operator
from tests.fleet.fleets import Part
from tests.support.ports import free_port
from tests.web.api import make_operator_token


@dataclass(frozen=True, slots=True)
class Web:
    url: str
    token: str  # an operator's
    description: Path


@pytest.fixture
def web(transactional_db: None, redis_server: str, tmp_path: Path) -> Iterator[Web]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    base, _, _ = os.environ["LUMINET_DATABASE_URL"].rpartition("/")
    settings = {name: value for name, value in os.environ.items() if name.startswith("LUMINET_")}
    settings |= {
        "LUMINET_DATABASE_URL": f"{base}/{connection.settings_dict['NAME']}",
        "LUMINET_BASE_URL": url,
        "LUMINET_WEB_PORT": str(port),
    }
    part = Part("web", luminet("run", "web"), settings, tmp_path / "web.log", lambda: web_check(url))
    token = make_operator_token(make_operator())
    try:
        part.start()
        description = tmp_path / "openapi.json"
        with urlopen(f"{url}/api/v1/openapi.json") as answer:
            description.write_bytes(answer.read())
        yield Web(url, token, description)
    finally:
        part.stop()


@pytest.fixture(scope="session")
def generator() -> Path:
    """The Python that generates Python clients."""
    try:
        return PYTHON_CLIENTS.ready_python()
    except Unavailable as why:
        return _not_run(str(why))


@pytest.fixture(scope="session")
def node_modules() -> Path:
    if os.environ.get(BOTH) != "1":
        pytest.skip("`make test-clients` runs this")
    try:
        return NODE_CLIENTS.ready_modules()
    except Unavailable as why:
        return _not_run(str(why))


def _not_run(why: str) -> Path:
    if os.environ.get(BOTH) == "1":
        pytest.fail(why)
    pytest.skip(f"no generated client is tested: {why}")
