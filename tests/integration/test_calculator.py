"""The calculator over REST: what it answers, what it refuses by field, and that it leaves no trace."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.api.schemas.calculator import CacheQuestion
from controlplane.cli import main
from kernels.models.presets import PRESETS
from tenants.models import AuditHead
from tests.web.api import Api, make_key, make_organisation, said

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 256,
}
PATH = "/calculator/kv"


@pytest.fixture
def key(db: None) -> Api:
    """The least a caller can be."""
    return Api(make_key(make_organisation("acme"), "infer"), Client())


def ask(api: Api, **body: Any) -> Any:
    response = api.post(PATH, body)
    assert response.status_code == 200, response.content
    return said(response)


def fields(api: Api, body: Any) -> tuple[int, list[str]]:
    response = api.post(PATH, body)
    return response.status_code, [one["field"] for one in said(response)["errors"]]


def test_models_are_a_list_in_pages(key: Api) -> None:
    whole = said(key.get("/models"))
    assert ([one["slug"] for one in whole["items"]], whole["next_cursor"]) == (sorted(PRESETS), None)
    found: list[str] = []
    at = "/models?limit=5"
    while True:
        page = said(key.get(at))
        found += [one["slug"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        at = f"/models?limit=5&cursor={page['next_cursor']}"
    assert found == sorted(PRESETS)


def test_a_page_that_ends_with_the_list_is_the_last(key: Api) -> None:
    assert said(key.get(f"/models?limit={len(PRESETS)}"))["next_cursor"] is None
    assert said(key.get(f"/models?limit={len(PRESETS) - 1}"))["next_cursor"] is not None


def test_a_cursor_of_another_list_is_refused(operator: Api) -> None:
    for slug in ("globex", "initech"):
        make_organisation(slug)
    cursor = said(operator.get("/orgs?limit=1"))["next_cursor"]
    assert operator.get(f"/models?cursor={cursor}").status_code == 400


def test_a_model_says_its_shape_and_where_it_is_from(key: Api) -> None:
    (found,) = [one for one in said(key.get("/models"))["items"] if one["slug"] == "llama-4-scout"]
    assert (found["attention"], found["layer_count"], found["kv_heads"], found["key_size"]) == ("GQA", 48, 8, 128)
    assert [(one["kind"], one["count"], one["window_tokens"]) for one in found["layers"]] == [
        ("chunked", 36, 8192),
        ("full", 12, None),
    ]
    assert "meta-llama/Llama-4-Scout-17B-16E" in found["source"]
    assert (found["parameters"], found["parameters_source"]) == (109 * 10**9, "published")


def test_every_listed_model_can_be_asked_about(key: Api) -> None:
    for one in said(key.get("/models"))["items"]:
        found = ask(key, model=one["slug"], kv_dtypes=["all"])
        assert {name: found["model"][name] for name in found["model"]} == {k: v for k, v in one.items() if k != "slug"}
        assert len(found["rows"]) == 15


def test_the_answer_is_exact(key: Api) -> None:
    found = ask(
        key, model="llama-3.1-70b", kv_dtypes=["int4"], context_tokens=131_072, accelerator="h200", tensor_parallel=8
    )
    (row,) = found["rows"]
    assert (row["bytes_per_token"], row["bytes_per_request"]) == (87_040, 11_408_506_880)
    assert (row["tokens_that_fit"], row["requests_that_fit"]) == (10_202_912, 77)
    assert found["hidden_size_formula"]["factor"] == 8.0
    assert found["machine"]["pool_bytes"] == 111_007_831_552


def test_rest_and_the_command_say_the_same(key: Api, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--model deepseek-v3 --context 4096 --accelerator b300 --tensor-parallel 4 --concurrency 7 --json"
    assert main(["calc", *words.split()]) == 0
    asked = {"model": "deepseek-v3", "context_tokens": 4096, "accelerator": "b300", "tensor_parallel": 4}
    assert json.loads(capsys.readouterr().out) == ask(key, **asked, concurrency=7)


def test_a_config_is_read_as_it_is(key: Api) -> None:
    found = ask(key, config={**CONFIG, "rope_scaling": {"factor": 8.0}, "architectures": ["LlamaForCausalLM"]})
    assert (found["model"]["kv_heads"], found["model"]["key_size"]) == (2, 64)
    assert found["rows"][0]["bytes_per_token"] == 2 * 2 * 2 * 64 * 2
    other = {"memory_bytes": 24 * 10**9, "bandwidth_bytes_per_second": 1.008e12, "weights_bytes": 10**9}
    assert ask(key, config=CONFIG, **other)["machine"]["accelerator"] == "custom"


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"text_config": found}
    return found


SLOW = {"bandwidth_bytes_per_second": 1.0}
UNLIKE = {**CONFIG, "num_hidden_layers": 65, "num_attention_heads": [2 * (at + 1) for at in range(65)], "head_dim": 64}
REFUSED: dict[str, tuple[Any, tuple[int, list[str]]]] = {
    "nothing": ({}, (422, ["model"])),
    "a model and a config": ({"model": "llama-3-8b", "config": CONFIG}, (422, ["model"])),
    "an unknown model": ({"model": "llama-9"}, (422, ["model"])),
    "an unknown field": ({"model": "llama-3-8b", "kv_dtype": "int4"}, (422, ["kv_dtype"])),
    "an unknown format": ({"model": "llama-3-8b", "kv_dtypes": ["fp6"]}, (422, ["kv_dtypes.0"])),
    "no format": ({"model": "llama-3-8b", "kv_dtypes": []}, (422, ["kv_dtypes"])),
    "no context": ({"model": "llama-3-8b", "context_tokens": 0}, (422, ["context_tokens"])),
    "a context in words": ({"model": "llama-3-8b", "context_tokens": "8192"}, (422, ["context_tokens"])),
    "an absurd context": ({"model": "llama-3-8b", "context_tokens": 2**62}, (422, ["context_tokens"])),
    "no memory": ({"model": "llama-3-8b", "memory_bytes": 0, **SLOW}, (422, ["memory_bytes"])),
    "too many kinds of layers": ({"config": UNLIKE}, (422, ["config.num_attention_heads"])),
    "a true GPU": ({"model": "llama-3-8b", "tensor_parallel": True}, (422, ["tensor_parallel"])),
    "too many GPUs": ({"model": "llama-3-8b", "tensor_parallel": 64}, (422, ["tensor_parallel"])),
    "weights that do not fit": ({"model": "llama-3-70b", "accelerator": "h100"}, (422, ["tensor_parallel"])),
    "a config that is a list": ({"config": [1]}, (422, ["config"])),
    "an empty config": ({"config": {}}, (422, ["config.num_hidden_layers"])),
    "a huge number": ({"config": {**CONFIG, "hidden_size": 1e308}}, (422, ["config.hidden_size"])),
    "layers in words": ({"config": {**CONFIG, "num_hidden_layers": "x" * 10_000}}, (422, ["config.num_hidden_layers"])),
    "layers as an object": ({"config": {**CONFIG, "num_hidden_layers": {}}}, (422, ["config.num_hidden_layers"])),
    "more KV heads than heads": (
        {"config": {**CONFIG, "num_key_value_heads": 8}},
        (422, ["config.num_key_value_heads"]),
    ),
    "nested too deep for us": ({"config": deep(20)}, (422, ["config.text_config.text_config.text_config"])),
    "nested too deep for JSON": ({"config": deep(40)}, (400, ["body"])),
    "a number beyond JSON": (b'{"config": {"hidden_size": 1e999}}', (400, ["config.hidden_size"])),
    "a number that is none": (b'{"config": {"hidden_size": NaN}}', (400, ["config.hidden_size"])),
    "a field twice": (b'{"model": "llama-3-8b", "model": "llama-2-7b"}', (400, ["model"])),
    "a list": (b"[]", (400, ["body"])),
}


def test_what_cannot_be_is_refused_by_its_field(key: Api) -> None:
    found = {name: fields(key, body) for name, (body, _) in REFUSED.items()}
    assert found == {name: promised for name, (_, promised) in REFUSED.items()}


def test_a_refusal_says_both_numbers_and_what_would_do(key: Api) -> None:
    problem = said(key.post(PATH, {"model": "llama-3-70b", "accelerator": "h100"}))
    (error,) = problem["errors"]
    assert "141,107,412,992 bytes of weights" in error["message"]
    assert error["message"].endswith("the smallest number that would do is 2")
    assert problem["type"] == "/api/v1/docs#problem-invalid"


def test_a_large_config_is_read_in_one_go(key: Api) -> None:
    layers = 4096
    config = {
        **CONFIG,
        "num_hidden_layers": layers,
        "layer_types": ["full_attention"] * layers,
        "junk": ["x" * 99] * 5000,
    }
    assert ask(key, config=config)["model"]["layer_count"] == layers


def test_the_schema_promises_no_memory_that_is_always_refused() -> None:
    (memory, _) = CacheQuestion.model_json_schema()["properties"]["memory_bytes"]["anyOf"]
    assert memory["minimum"] == 1


def test_asking_changes_nothing(key: Api) -> None:
    before = bytes(AuditHead.objects.get().hash)
    key.get("/whoami")
    with CaptureQueriesContext(connection) as queries:
        ask(key, model="llama-3-8b", accelerator="h200")
    assert not [one["sql"] for one in queries if one["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert bytes(AuditHead.objects.get().hash) == before


def test_a_repeated_question_is_answered_anew_and_another_under_its_key_refused(key: Api) -> None:
    first = key.post(PATH, {"model": "llama-3-8b"}, Idempotency_Key="k")
    again = key.post(PATH, {"model": "llama-3-8b"}, Idempotency_Key="k")
    assert (first.status_code, again.status_code, first.content == again.content) == (200, 200, True)
    assert key.post(PATH, {"model": "llama-2-7b"}, Idempotency_Key="k").status_code == 409


def test_whoever_has_no_token_is_not_answered(operator: Api) -> None:
    stranger = Api(None, operator.client)
    assert stranger.post(PATH, {"model": "llama-3-8b"}).status_code == 401
    assert stranger.get("/models").status_code == 401
