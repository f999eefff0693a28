"""A real engine, asked as gateways ask it: what it tells is enough to know what it would find cached."""

from array import array
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine_agent.cache.keys import ChainIdentity, Digest, block_keys, chain_root, packed_tokens
from engine_agent.contracts.block_events import MARK_BYTES, Page, events_decode
from engine_agent.contracts.identity import FLEET, WATCH
from engine_agent.journal.journal import Opened
from engine_agent.prompts.bundle import Bundle, bundle_name, bundle_read
from tests.engines.rendering import chat_text
from tests.integration.openai_engine import MODEL, SECONDS, OpenAiEngine, running
from tests.integration.test_openai_fleet import signed

KEY, KV_FORMAT = b"k" * 32, "bf16"  # of the one namespace in the engine's snapshot
MESSAGES = [{"role": "user", "content": "Tell me of the sea. " * 20}]
WATCHING = {"scope": WATCH, "organisation_id": FLEET, "organisation": FLEET, "namespace_id": FLEET, "namespace": FLEET}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiEngine]:
    with running(tmp_path_factory.mktemp("journal")) as engine:
        yield engine


@pytest.fixture
def client(engine: OpenAiEngine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url, timeout=SECONDS) as client:
        yield client


def watched(client: httpx.Client, path: str, **query: Any) -> httpx.Response:
    answer = client.get(path, params=query, headers=signed(**WATCHING))
    assert answer.status_code == 200, answer.text
    return answer


def page_of(client: httpx.Client, **query: Any) -> Page:
    return events_decode(watched(client, "/gateway/events", **query).content)


def bundle_of(client: httpx.Client) -> Bundle:
    name = watched(client, "/gateway/about").json()["bundle"]
    data = watched(client, f"/gateway/bundles/{name}").content
    assert bundle_name(data) == name
    return bundle_read(data)


def foretold(client: httpx.Client, body: dict[str, Any], *, salt: bytes = b"") -> tuple[Digest, bytes]:
    """The root of a chat's chain, and the marks of its full blocks: from what the engine tells and the key alone."""
    about, bundle = watched(client, "/gateway/about").json(), bundle_of(client)
    text = chat_text(bundle.template, body)
    tokens = bundle.encode(text.text, add_special=text.adds_special)
    identity = ChainIdentity(
        epoch=0,
        model_revision=about["revision"],
        kv_format=KV_FORMAT,
        scale_set=about["scale_sets"][KV_FORMAT],
        block_tokens=about["block_tokens"],
        salt=salt,
    )
    root = chain_root(KEY, identity)
    packed = packed_tokens(array("I", tokens[:-1]))  # the last one is computed, or there is nothing to answer from
    digests = block_keys(root, packed, about["block_tokens"])
    return root, b"".join(digest[:MARK_BYTES] for digest in digests)


def chat(client: httpx.Client, fields: dict[str, Any], **identity: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 1, "temperature": 0, **fields}
    answer = client.post("/v1/chat/completions", json=body, headers=signed(**identity))
    assert answer.status_code == 200, answer.text
    return answer


def test_what_an_engine_tells_foretells_its_hits_to_the_block(client: httpx.Client) -> None:
    body = {"messages": MESSAGES, "cache_salt": "ours"}
    chat(client, {"cache_salt": "ours"})
    root, marks = foretold(client, body, salt=b"ours")
    page = page_of(client)
    told = [change for change in page.changes if change.root == root[:MARK_BYTES]]
    assert page.is_snapshot
    assert {change.namespace for change in told} == {"ns-1"}
    held = b"".join(change.marks for change in told)
    assert held.startswith(marks)
    block_tokens = watched(client, "/gateway/about").json()["block_tokens"]
    again = chat(client, {"cache_salt": "ours"})
    assert again.headers["x-luminet-cached-tokens"] == str(len(marks) // MARK_BYTES * block_tokens)


def test_a_gateway_that_follows_hears_of_new_blocks(client: httpx.Client) -> None:
    known = page_of(client)
    chat(client, {"cache_salt": "new"})
    root, marks = foretold(client, {"messages": MESSAGES}, salt=b"new")
    page = page_of(client, boot=known.boot, since=known.number, wait=30)
    assert not page.is_snapshot
    stored = [change for change in page.changes if change.root == root[:MARK_BYTES] and change.kind == "stored"]
    assert b"".join(change.marks for change in stored).startswith(marks)
    assert page_of(client, boot="another", since=page.number).is_snapshot


def test_what_is_known_of_another_engine_is_why_it_missed_here(engine: OpenAiEngine, client: httpx.Client) -> None:
    seen = len(engine.records)
    answer = chat(client, {"cache_salt": "elsewhere", "stream": True}, elsewhere_tokens=64)
    assert answer.headers["x-luminet-miss-reason"] == "other-agent"
    opened = engine.records[seen]
    assert isinstance(opened, Opened)
    assert opened.miss_reason == "other-agent"
    tail = opened.prompt_tokens % 16 or 16
    assert dict(opened.missed) == {"other-agent": opened.prompt_tokens - tail, "tail": tail}
    figures = client.get("/metrics").text
    assert f'reason="other-agent"}} {float(opened.prompt_tokens - tail)}' in figures


def test_without_a_gateways_word_nobody_walks_around_the_door(client: httpx.Client) -> None:
    for path in ("/gateway/about", "/gateway/events", "/gateway/bundles/0"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers=signed()).status_code == 403
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 1}
    refused = client.post("/v1/chat/completions", json=body, headers=signed(**WATCHING))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_scope")
