"""Every integration test has the real Redis; those marked django_db have the real PostgreSQL too."""

from collections.abc import Iterator
from datetime import datetime

import pytest
import redis
from django.test import Client
from django.utils import timezone

from controlplane.analytics import movers
from tests.api import Api, make_key, make_operator_token, make_organisation
from tests.factories import make_operator, make_user


@pytest.fixture(autouse=True)
def _clean_redis(redis_server: str) -> Iterator[None]:
    yield
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What a process keeps for a minute was of the database of the test before."""
    movers.recent.forget()


@pytest.fixture
def operator_client(db: None, client: Client) -> Client:
    client.force_login(make_operator())
    return client


@pytest.fixture
def customer_client(db: None) -> Client:
    client = Client()
    client.force_login(make_user())
    return client


@pytest.fixture
def operator(db: None) -> Api:
    """The REST API as an operator's token."""
    return Api(make_operator_token(make_operator()), Client())


@pytest.fixture
def acme(db: None) -> Api:
    """The REST API as a key of the organisation acme with every REST scope."""
    return Api(make_key(make_organisation("acme")), Client())


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Django's clock stands: who was heard a moment ago stays so, however slowly a busy machine goes on."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    return now
