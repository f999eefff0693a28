"""A gateway and engines of another version than its own: requests are answered, whatever either does not know yet."""

import base64
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest

from engine_agent.contracts.block_events import Load, Page, events_encode
from engine_agent.contracts.identity import HEADER
from engine_agent.contracts.protocol import canonical_json
from tests.engines.processes import Answer, Engine
from tests.gateway.snapshots import KEY, MODEL, SECRETS, engine_snapshot, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import fleet_engine, gateway, told_as
from tests.integration.test_gateway_identity import Recording, identity
from tests.support.waiting import wait_until
from tests.unit.gateway.knowing.saying import bundle_bytes, loaded
from tests.unit.server.identities import IDENTITY

AGENT = "agent-1"
BODY = {"model": MODEL, "prompt": "The sea was calm.", "max_tokens": 1, "temperature": 0}
VERSION_AT = 7  # in a page


# Engines of this version


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with fleet_engine(AGENT) as running:
        assert running.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        yield running


def asked(engine: Engine, **more: Any) -> Answer:
    """As a gateway that knows nothing of other engines' caches, and says this besides: signed as this engine has it."""
    now = time.time()
    told = asdict(IDENTITY) | {"organisation_id": "1", "namespace_id": "11", "request_id": uuid4().hex}
    told |= {"issued_at": now, "expires_at": now + 30, "deadline": None, "audience": AGENT, **more}
    del told["elsewhere_tokens"]
    signed = "v1." + base64.urlsafe_b64encode(canonical_json(told)).rstrip(b"=").decode()
    mac = hmac.digest(SECRETS[AGENT].encode(), b"luminet identity\0" + signed.encode(), "sha256")
    header = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    return engine.ask("POST", "/v1/completions", BODY, **{HEADER: header})


def test_an_engine_answers_a_gateway_of_before(engine: Engine) -> None:
    assert asked(engine).status == 200


def test_an_engine_answers_a_gateway_of_after(engine: Engine) -> None:
    assert asked(engine, lane="fast", hints={"of": ["whatever"]}).status == 200


def test_an_engine_refuses_what_it_must_understand_and_does_not(engine: Engine) -> None:
    refused = asked(engine, only_until="noon", critical=["only_until"])
    assert (refused.status, refused.error) == (401, "invalid_api_key")
    wait_until(lambda: any("critical member that is not known here" in line for line in engine.logged))


# Engines of another version


class Tomorrow(Recording):
    """Says of itself what no engine says yet, and tells its cache in pages of another version."""

    version = 2

    class Handler(Recording.Handler):
        server: "Tomorrow"

        def do_GET(self) -> None:  # noqa: N802 (http.server's name)
            self._answer(200, self.server.told(self.path.partition("?")[0]))

    def __init__(self) -> None:
        super().__init__()
        self.pages = 0

    def told(self, path: str) -> bytes:
        if path == "/gateway/about":
            about = {"model": MODEL, "boot": "b1", "revision": "r1", "block_tokens": 16, "kv_dtypes": ["bf16", "nf3"]}
            return json.dumps({**about, "bundle": loaded().name, "mood": {"good": True}}).encode()
        if path == "/gateway/events":
            self.pages += 1
            page = events_encode(Page("b1", 1, True, True, Load(0, 0, 4, 100, 100, 0.0), ()))
            return page[:VERSION_AT] + bytes((self.version,)) + page[VERSION_AT + 1 :]
        return bundle_bytes() if path.startswith("/gateway/bundles/") else b"{}"


@contextmanager
def engine_of_tomorrow() -> Iterator[Tomorrow]:
    with Tomorrow() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def complete(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=BODY, headers={"authorization": f"Bearer {KEY}"}, timeout=30)


def test_an_engine_whose_pages_cannot_be_read_is_asked_all_the_same() -> None:
    with engine_of_tomorrow() as engine, gateway() as running:
        running.apply(gateway_snapshot(tenants(), route(AGENT, f"http://127.0.0.1:{engine.server_port}")))
        wait_until(lambda: engine.pages >= 2)  # it was tried again
        assert not running.heard(), "the page was read"
        assert [complete(running.url).status_code for _ in range(5)] == [200] * 5
        standing = running.engines.standing(AGENT)
        assert (standing.is_wanted, standing.share) == (True, 1.0)
        assert all("elsewhere_tokens" not in identity(one) for one in engine.seen)
        engine.version = 1
        wait_until(running.heard)
