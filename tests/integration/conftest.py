"""Every integration test has the real Redis; those marked django_db have the real PostgreSQL too."""

import os
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone

from controlplane.analytics import movers
from tests.database.factories import make_operator, make_user
from tests.web.api import Api, make_key, make_operator_token, make_organisation


@pytest.fixture(autouse=True)
def _clean_redis(redis_server: str) -> Iterator[None]:
    yield
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()


@pytest.fixture(scope="session", autouse=True)
def _certificates_read_once() -> Iterator[None]:
    """httpx, and the httpx2 of OpenAI's client, read all certificates for each client, which takes them 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("httpx", "httpx2"):
            transports = import_module(f"{name}._transports.default")
            patch.setattr(transports, "create_ssl_context", _remembering(transports.create_ssl_context))
        yield


def _remembering(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """With the same arguments and the same environment, the same context."""

    @cache
    def created(environment: tuple[str | None, ...], **arguments: Any) -> ssl.SSLContext:
        return create(**arguments)

    def found(**arguments: Any) -> ssl.SSLContext:
        return created(tuple(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))), **arguments)

    return found


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
