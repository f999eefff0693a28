"""A real engine behind a gateway: the signed header decides for whom, and how long it may take."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from engine_agent.contracts.identity import HEADER, sign
from engine_agent.journal.journal import Closed, Opened
from tests.integration.openai_engine import MODEL, OpenAiEngine, running
from tests.unit.server.asking import Answered
from tests.unit.server.fuzzing import check, random_bodies
from tests.unit.server.identities import KEY, LOCAL, SECRET

NUMBERS = itertools.count()
PROMPT = "The sea was calm and the ship sailed on through the night. " * 20


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiEngine]:
    with running(tmp_path_factory.mktemp("journal")) as engine:
        yield engine


@pytest.fixture
def client(engine: OpenAiEngine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        yield client


def signed(**fields: Any) -> dict[str, str]:
    now = time.time()
    base = replace(LOCAL, request_id=f"req-{next(NUMBERS)}", issued_at=now, expires_at=now + 30)
    return {HEADER: sign(replace(base, **fields), SECRET)}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "temperature": 0, **fields}


def complete(client: httpx.Client, headers: dict[str, str], **fields: Any) -> httpx.Response:
    return client.post("/v1/completions", json=completion(**fields), headers=headers)


def test_a_namespace_this_engine_does_not_know_is_to_be_tried_elsewhere(client: httpx.Client) -> None:
    answer = complete(client, signed(namespace_id="ns-2"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unknown_namespace")
    assert answer.headers["retry-after"] == "1"


def test_a_request_that_takes_too_long_ends_at_its_deadline(engine: OpenAiEngine, client: httpx.Client) -> None:
    fields: dict[str, Any] = {"max_tokens": 1_500, "ignore_eos": True}
    seen = len(engine.records)
    whole = complete(client, signed(deadline=time.time() + 0.4), **fields)
    assert (whole.status_code, whole.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert len(engine.records) == seen
    stream = complete(client, signed(deadline=time.time() + 0.4), stream=True, **fields)
    assert stream.status_code == 200
    events = Answered(200, {}, stream.content).events
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    opened, closed = engine.records[seen:]
    assert isinstance(opened, Opened)
    assert isinstance(closed, Closed)
    assert closed.outcome == "deadline"
    engine.until_idle()


def test_a_probe_is_served_but_is_nobodys_traffic(engine: OpenAiEngine, client: httpx.Client) -> None:
    def counters() -> Any:
        stats = engine.do(engine.backend.stats())
        figures = client.get("/metrics").text
        return stats["namespaces"][0]["counters"], [line for line in figures.splitlines() if "prefix_cache" in line]

    complete(client, signed())
    before = counters()
    answer = complete(client, signed(kind="probe"))
    assert answer.headers["x-luminet-prompt-tokens"] == str(answer.json()["usage"]["prompt_tokens"])
    assert counters() == before
    assert [record.kind for record in engine.records if isinstance(record, Opened)][-1] == "probe"


def test_a_request_is_recorded_as_the_gateway_named_it(engine: OpenAiEngine, client: httpx.Client) -> None:
    answer = complete(client, signed(request_id="req-named", attempt=3))
    assert answer.headers["x-request-id"] == "req-named"
    opened, closed = engine.records[-2:]
    assert (opened.request_id, opened.attempt) == (closed.request_id, closed.attempt) == ("req-named", 3)


def test_no_body_makes_a_real_engine_fail(engine: OpenAiEngine, client: httpx.Client) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    for _, (path, body) in zip(range(150), random_bodies(3, model=MODEL), strict=False):
        answer = client.post(path, content=body, headers=key)
        check(path, body, Answered(answer.status_code, dict(answer.headers), answer.content))
    engine.until_idle()
