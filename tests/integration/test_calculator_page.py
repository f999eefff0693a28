"""The calculator as a page: an address is a question, and what it answers is what REST answers."""

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.dashboard.calculator.forms import DEMO_CONFIG
from controlplane.fleet.models import QualityResult
from tests.web.api import make_key, make_organisation

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
BIG = {"model": "llama-3.1-70b", "accelerator": "h200", "gpus": "4", "context": "131072", "requests": "16"}


def asked(client: Client, **query: Any) -> str:
    answer: HttpResponse = client.get("/calculator", query)  # type: ignore[assignment]
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def refused(client: Client, query: dict[str, str]) -> str:
    answer = client.get("/calculator", query)
    assert answer.status_code == 422, answer.content
    return answer.content.decode()


def words(page: str) -> str:
    main = page[page.index("<main") : page.index("</main>")]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


def body_of(page: str) -> Any:
    found = re.search(r"<pre[^>]*>(.*?)</pre>", page, re.S)
    assert found
    return json.loads(html.unescape(found[1]))


def test_whoever_asks_nothing_sees_the_demo_model(customer_client: Client) -> None:
    told = words(asked(customer_client))
    assert "A token of the demo model takes 1,024 bytes in fp8" in told
    assert "int4 takes the least: 576 bytes a token" in told


def test_the_demo_model_is_the_one_that_is_shipped() -> None:
    shipped = json.loads((ROOT / "engine_agent/demo/model/config.json").read_text())
    assert {name: shipped[name] for name in DEMO_CONFIG} == DEMO_CONFIG


@pytest.mark.parametrize(
    "query",
    [
        {},
        BIG,
        {**BIG, "shared": "4,096", "weights": "fp8", "share": "80", "reserve": "0.5"},
        {"model": "own", "layers": "32", "heads": "32", "kv_heads": "8", "head_size": "128", "parameters": "8.03B"},
        {"model": "mistral-7b-v0.1", "context": "32768", "windows": "ignore", "kv_dtype": ["bf16", "int4"]},
        {**BIG, "accelerator": "custom", "memory": "80", "bandwidth": "3350.5"},
    ],
)
def test_the_page_says_the_bytes_that_rest_says(customer_client: Client, query: dict[str, Any]) -> None:
    page = asked(customer_client, **query)
    key = make_key(make_organisation("acme"), "infer")
    answer = Client().post(
        "/api/v1/calculator/kv", body_of(page), "application/json", headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 200, answer.content
    told, rows = words(page), answer.json()["rows"]
    assert rows
    for row in rows:
        assert f"{row['bytes_per_token']:,} B" in told
        assert f"{row['bytes_at_concurrency']:,} B" in told
        if row["tokens_that_fit"] is not None:
            assert f"{row['tokens_that_fit']:,} {row['requests_that_fit']:,}" in told


def test_a_link_to_an_answer_answers_the_same(customer_client: Client) -> None:
    page = asked(customer_client, **BIG, shared="4096", kv_dtype=["fp8", "int4"])
    found = re.search(r'href="([^"]+)">Link to this answer', page)
    assert found
    address = html.unescape(found[1])
    assert parse_qs(urlsplit(address).query)["kv_dtype"] == ["fp8", "int4"]
    again = customer_client.get(address).content.decode()
    assert words(again) == words(page)


def test_what_is_left_out_of_an_address_is_as_usual(customer_client: Client) -> None:
    sent = {"model": "llama-3.1-8b", "context": "", "requests": "1", "shared": "0", "accelerator": "", "gpus": "1"}
    assert words(asked(customer_client, model="llama-3.1-8b")) == words(asked(customer_client, **sent))


def test_a_prefix_that_all_share_is_held_once(customer_client: Client) -> None:
    """Of 16 requests 15 find 4,096 tokens there: 15 × 4,096 × 163,840 bytes."""
    assert f"held once in fp8: {15 * 4096 * 163_840:,} bytes" in words(asked(customer_client, **BIG, shared="4096"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"context": "12x"}, "Context, tokens a request: “12x” is not a whole number, as 8192."),
        ({"context": "0"}, "Context, tokens a request: “0” is not a whole number from 1 to"),
        ({"requests": "-1"}, "Requests at once: “-1” is not a whole number"),
        ({"shared": "9000"}, "Shared prefix, tokens: “9000” is not at most 8,192, the context."),
        ({"model": "gpt-9"}, "Model: “gpt-9” is none of demo,"),
        ({"accelerator": "abacus"}, "Accelerator: “abacus” is none of a100,"),
        ({"kv_dtype": "int1"}, "KV formats: “int1” is none of bf16,"),
        ({"weights": "int3"}, "Weights as: “int3” is none of fp32,"),
        ({"model": "own", "layers": "4"}, "Query heads: nothing is given, and it is to be a whole number from 1"),
        ({"model": "own", "layers": "4", "heads": "8", "kv_heads": "3"}, "KV heads: “3” is not a divisor of 8"),
        ({**BIG, "gpus": "1", "share": "50"}, "Tensor parallel, GPUs: “1” is not enough, with"),
        ({**BIG, "share": "120"}, "Memory used, %: “120” is not above 0 and up to 100."),
        ({**BIG, "accelerator": "custom"}, "Its memory, GB: nothing is given"),
        ({**BIG, "accelerator": "custom", "memory": "80"}, "Its bandwidth, GB/s: nothing is given"),
        ({"parameters": "many"}, "Parameters: “many” is not a number, as 8.03B"),
        ({"context": "9" * 5000}, "characters"),
    ],
)
def test_what_cannot_be_is_named_with_its_field_and_value(
    customer_client: Client, query: dict[str, str], said: str
) -> None:
    page = refused(customer_client, query)
    told = words(page)
    assert "Nothing is counted" in told
    assert said in told
    assert "A request" not in told
    for name, typed in query.items():
        if name not in ("model", "accelerator", "kv_dtype", "weights"):
            assert f'value="{typed}"' in page, name


@pytest.mark.parametrize(
    "field", ["model", "context", "layers", "parameters", "memory", "kv_dtype", "windows", "share"]
)
def test_hostile_text_is_shown_as_text(customer_client: Client, field: str) -> None:
    page = refused(customer_client, {field: "<script>alert(1)</script>"})
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_quality_is_only_what_was_measured(customer_client: Client) -> None:
    QualityResult.objects.create(
        model="luminet-demo", revision="r1", backend="torch-cpu", kv_dtype="fp8", verdict="passed", created_by="x",
        figures={"byte_divergence_low": 0.0015, "byte_divergence_high": 0.0019},
    )  # fmt: skip
    QualityResult.objects.create(
        model="other", revision="r1", backend="torch-cpu", kv_dtype="int4", verdict="passed", created_by="x"
    )
    told = words(asked(customer_client))
    assert "passed on torch-cpu, divergence 0.0015 to 0.0019 a byte" in told
    assert told.count("not measured here") == 7
    assert words(asked(customer_client, model="llama-3.1-8b")).count("not measured here") == 8


def test_it_only_reads(customer_client: Client) -> None:
    assert customer_client.post("/calculator", {}).status_code == 405
    with CaptureQueriesContext(connection) as queries:
        asked(customer_client, **BIG)
    assert all(one["sql"].startswith("SELECT") for one in queries.captured_queries)
