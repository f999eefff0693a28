"""The real `openai` client against a real engine, and against a gateway before one: what a developer sees who changes
nothing but the address. Every claim holds at both.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI

from engine_agent.journal.journal import Closed, Opened
from tests.integration.openai_doors import WAYS, Door, opened
from tests.integration.openai_engine import MODEL, OpenAiEngine
from tests.support.waiting import wait_until
from tests.unit.server.reading import counters

LONG = "The sea was calm and the ship sailed on through the night, and nobody on board was awake. " * 12
MESSAGES: Any = [{"role": "system", "content": LONG}, {"role": "user", "content": "Where are we?"}]


@pytest.fixture(scope="module", params=WAYS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened(request.param, tmp_path_factory.mktemp("journal")) as door:
        yield door


@pytest.fixture
def engine(door: Door) -> OpenAiEngine:
    return door.engine


@pytest.fixture
def client(door: Door) -> Iterator[OpenAI]:
    with door.client() as client:
        yield client


def told(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-luminet-")}


def text_of(stream: Any) -> str:
    return "".join(part.choices[0].delta.content or "" for part in stream if part.choices)


def test_a_chat_is_answered_and_the_second_time_from_the_cache(client: OpenAI) -> None:
    ask = client.chat.completions.with_raw_response.create
    fresh = f"{LONG} Once."
    messages: Any = [{"role": "system", "content": fresh}, {"role": "user", "content": "Hello"}]
    first, second = (ask(model=MODEL, messages=messages, max_tokens=8, temperature=0) for _ in range(2))
    cold, warm = told(first.headers), told(second.headers)
    assert (cold["x-luminet-cached-tokens"], cold["x-luminet-miss-reason"]) == ("0", "cold")
    assert warm["x-luminet-miss-reason"] == "none"
    cached, prompt = int(warm["x-luminet-cached-tokens"]), int(warm["x-luminet-prompt-tokens"])
    assert 0 < cached < prompt
    assert warm["x-luminet-cache-hit"] == f"{cached * 1000 // prompt / 10:.1f}"
    assert warm["x-luminet-kv-dtype"] == "bf16"
    assert warm["x-luminet-policy-revision"] == "7"
    answers = [one.parse() for one in (first, second)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    usage = answers[1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (prompt, cached)
    assert usage.completion_tokens == 8


def test_a_stream_says_the_same_as_an_answer_in_one_piece(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=24, temperature=0)
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert told(raw.headers).keys() >= {"x-luminet-cache-hit", "x-luminet-agent"}
    parts = list(raw.parse())
    assert text_of(parts) == whole.choices[0].message.content
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_streams_usage_is_its_last_part_and_only_where_it_is_asked_for(client: OpenAI, api: str) -> None:
    create: Any = client.chat.completions if api == "chat" else client.completions
    prompt: Any = {"messages": MESSAGES} if api == "chat" else {"prompt": LONG}
    options: Any = {"model": MODEL, "max_tokens": 4, "temperature": 0, "stream": True, **prompt}
    list(create.create(**options))
    raw = create.with_raw_response.create(**options, stream_options={"include_usage": True})
    *parts, last = raw.parse()
    assert last.choices == []
    details, headers = last.usage.prompt_tokens_details, told(raw.headers)
    assert 0 < details.cached_tokens == int(headers["x-luminet-cached-tokens"])
    assert last.usage.prompt_tokens == int(headers["x-luminet-prompt-tokens"])
    assert last.usage.completion_tokens == 4
    assert all(part.usage is None for part in [*parts, *create.create(**options)])


def test_an_answer_ends_with_as_many_tokens_as_it_may_have(client: OpenAI) -> None:
    extra = {"ignore_eos": True}
    most: Any
    for most in ({"max_tokens": 5}, {"max_completion_tokens": 5}):
        answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=extra, **most)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=0)
    assert caught.value.param == "max_tokens"


def test_without_heat_or_with_the_likeliest_alone_the_answer_is_the_likeliest(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12}

    def said(**more: Any) -> str | None:
        answer: Any = client.chat.completions.create(**options, **more)
        content: str | None = answer.choices[0].message.content
        return content

    likeliest = said(temperature=0)
    assert said(temperature=1.8, top_p=1e-9) == likeliest
    assert {said(temperature=1.8, seed=seed) for seed in range(3)} != {likeliest}
    wrong: Any
    for wrong in ({"temperature": -1}, {"top_p": 0}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**options, **wrong)
        assert caught.value.param in wrong


def test_a_seed_gives_the_same_answer_again(client: OpenAI) -> None:
    answers = [
        client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=16, temperature=1.5, seed=seed)
        for seed in (7, 7, 8)
    ]
    first, again, other = (answer.choices[0].message.content for answer in answers)
    assert first == again != other


def test_several_choices_differ_and_are_all_there_also_in_a_stream(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 1.5, "seed": 3, "n": 3}
    whole = client.chat.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = {choice.index: choice.message.content for choice in whole.choices}
    assert len(set(texts.values())) > 1
    streamed = {0: "", 1: "", 2: ""}
    for part in client.chat.completions.create(**options, stream=True):
        streamed[part.choices[0].index] += part.choices[0].delta.content or ""
    assert streamed == texts
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 36


def test_beams_are_choices(client: OpenAI) -> None:
    extra = {"use_beam_search": True}
    answer = client.completions.create(model=MODEL, prompt="The ship", max_tokens=8, n=3, extra_body=extra)
    assert len({choice.text for choice in answer.choices}) == 3


def test_prompts_come_as_text_or_tokens_one_or_many(engine: OpenAiEngine, client: OpenAI) -> None:
    tokens = [engine.backend.tokenizer.encode(text) for text in ("The ship", "A storm")]
    options: Any = {"model": MODEL, "max_tokens": 6, "temperature": 0}
    texts = client.completions.create(prompt=["The ship", "A storm"], **options)
    ids = client.completions.create(prompt=tokens, **options)
    one = client.completions.create(prompt=tokens[1], **options)
    assert [choice.text for choice in texts.choices] == [choice.text for choice in ids.choices]
    assert one.choices[0].text == texts.choices[1].text
    assert texts.usage is not None
    assert texts.usage.prompt_tokens == sum(map(len, tokens))


def test_what_is_echoed_is_the_prompt(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": "The ship", "max_tokens": 6, "temperature": 0}
    plain, echoed = client.completions.create(**options), client.completions.create(**options, echo=True)
    assert echoed.choices[0].text == "The ship" + plain.choices[0].text


def test_a_chats_logprobs_spell_the_answer(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3
    )
    choice = answer.choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert len(content) == 8
    assert choice.message.content is not None
    assert b"".join(bytes(one.bytes or []) for one in content).startswith(choice.message.content.encode())
    for one in content:
        assert len(one.top_logprobs) == 3
        assert one.logprob == max(top.logprob for top in one.top_logprobs) <= 0


def test_a_completions_logprobs_are_the_same_in_a_stream(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": LONG, "max_tokens": 6, "temperature": 0, "logprobs": 2}
    whole = client.completions.create(**options).choices[0].logprobs
    parts = [part.choices[0].logprobs for part in client.completions.create(**options, stream=True)]
    assert whole is not None
    for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert getattr(whole, field) == [one for part in parts if part for one in getattr(part, field)]


def test_a_stop_string_ends_the_answer_before_it(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": LONG, "max_tokens": 24, "temperature": 0}
    free = client.completions.create(**options).choices[0]
    stop = free.text[5:9]
    stopped = client.completions.create(**options, stop=[stop]).choices[0]
    assert (stopped.finish_reason, stopped.text) == ("stop", free.text[: free.text.index(stop)])
    included = client.completions.create(**options, stop=[stop], extra_body={"include_stop_str_in_output": True})
    assert included.choices[0].text == stopped.text + stop


def test_a_request_chooses_its_format_within_the_policy(client: OpenAI) -> None:
    ask = client.chat.completions.with_raw_response.create
    answer = ask(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body={"kv_cache_dtype": "int4"})
    assert told(answer.headers)["x-luminet-kv-dtype"] == "int4"
    for dtype in ("int8", "fp17"):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body={"kv_cache_dtype": dtype})
        assert caught.value.param == "kv_cache_dtype"
        assert told(caught.value.response.headers) == {}


def test_extra_body_field_is_merged_into_the_request(client: OpenAI) -> None:
    """OpenAI's JavaScript client sends `extra_body` as it is given; this one merges it, so it is given twice."""
    ask = client.chat.completions.with_raw_response.create
    javascript: Any = {"extra_body": {"kv_cache_dtype": "int4"}}
    answer = ask(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body=javascript)
    assert told(answer.headers)["x-luminet-kv-dtype"] == "int4"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body={"extra_body": {"kv_cache_dtype": "fp17"}})
    assert caught.value.param == "kv_cache_dtype"


def test_a_salt_keeps_a_prompt_apart(client: OpenAI) -> None:
    ask = client.chat.completions.with_raw_response.create
    options: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 2}
    ask(**options)
    assert told(ask(**options).headers)["x-luminet-cache-hit"] > "50"
    salted = ask(**options, extra_body={"cache_salt": "apart"})
    assert told(salted.headers)["x-luminet-cached-tokens"] == "0"


def test_a_request_shortens_the_life_of_its_own_blocks_and_of_no_others(engine: OpenAiEngine, client: OpenAI) -> None:
    def expired() -> int:
        (namespace,) = engine.do(engine.backend.stats())["namespaces"]
        return int(namespace["counters"]["expired_blocks"])

    ask = client.completions.with_raw_response.create
    brief: Any
    lasting: Any
    brief, lasting = ({"model": MODEL, "prompt": f"{name} {LONG}", "max_tokens": 1} for name in ("Brief.", "Lasting."))
    before = expired()
    blocks = int(ask(**brief, extra_body={"ttl_seconds": 1}).headers["x-luminet-prompt-tokens"]) // 16
    ask(**lasting)
    wait_until(lambda: expired() == before + blocks)
    gone, kept = told(ask(**brief).headers), told(ask(**lasting).headers)
    assert (gone["x-luminet-cached-tokens"], gone["x-luminet-miss-reason"]) == ("0", "expired")
    assert kept["x-luminet-miss-reason"] == "none"
    for wrong in (0, 604_801):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(**brief, extra_body={"ttl_seconds": wrong})
        assert caught.value.param == "ttl_seconds"


def test_the_model_is_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "luminet"


@pytest.mark.parametrize("name", ["gpt-9", "meta-llama/Llama-3.1-8B-Instruct", "a b/ü?"])
def test_a_model_that_is_not_there_is_not_found_and_those_that_are_there_are_named(client: OpenAI, name: str) -> None:
    for ask in (
        lambda: client.models.retrieve(name),
        lambda: client.completions.create(model=name, prompt="x"),
        lambda: client.chat.completions.create(model=name, messages=MESSAGES, stream=True),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert (caught.value.code, caught.value.param, caught.value.type) == (
            "model_not_found",
            "model",
            "invalid_request_error",
        )
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["message"] == f"There is no model {name!r} here. Served here: {MODEL}."


def test_a_request_has_the_id_that_its_client_gave_it_or_one_of_its_own(client: OpenAI) -> None:
    options: Any = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    named = client.completions.create(**options, extra_headers={"x-request-id": "mine-1"})
    assert named._request_id == "mine-1"
    unnamed = [client.completions.create(**options)._request_id for _ in range(2)]
    assert len({*unnamed, None, "mine-1"}) == 4
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{**options, "n": 0}, extra_headers={"x-request-id": "mine-2"})
    assert caught.value.request_id == "mine-2"


def test_a_streams_headers_are_there_before_anything_of_it_is_read(engine: OpenAiEngine, client: OpenAI) -> None:
    create = client.completions.with_streaming_response.create
    extra, seen = {"ignore_eos": True}, len(engine.records)
    with create(model=MODEL, prompt=LONG, max_tokens=1_500, stream=True, extra_body=extra) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert told(answer.headers).keys() >= {"x-luminet-cache-hit", "x-luminet-prompt-tokens", "x-luminet-agent"}
    wait_until(lambda: len(engine.records) == seen + 2)
    closed = engine.records[-1]
    assert (closed.outcome, closed.generated_tokens < 1_500) == ("cancelled", True)  # it had hardly begun


def test_each_mistake_is_the_clients_own_kind_of_error(door: Door, client: OpenAI) -> None:
    ask = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="gpt-9", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as empty:
        ask(model=MODEL, messages=[])
    assert empty.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as tools:
        ask(model=MODEL, messages=MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}])
    assert (tools.value.code, tools.value.param) == ("unsupported_parameter", "tools")
    with pytest.raises(openai.BadRequestError) as long:
        ask(model=MODEL, messages=[{"role": "user", "content": "sea " * 10_000}])
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "messages")
    with door.client(api_key="sk-other") as stranger, pytest.raises(openai.AuthenticationError) as key:
        stranger.models.list()
    assert key.value.code == "invalid_api_key"


def test_a_body_that_is_far_too_long_is_answered_while_it_is_sent(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(model=MODEL, prompt="x" * 30_000_000)
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")


def test_a_full_contexts_prompt_is_no_body_too_long(client: OpenAI) -> None:
    room = 2_048 - 1
    answer = client.completions.create(model=MODEL, prompt=[1000] * room, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == room


def test_a_stream_that_is_closed_early_frees_its_blocks(engine: OpenAiEngine, client: OpenAI) -> None:
    extra = {"ignore_eos": True}
    seen = len(engine.records)
    for _ in range(3):
        stream = client.completions.create(model=MODEL, prompt=LONG, max_tokens=1_500, stream=True, extra_body=extra)
        next(iter(stream))
        stream.close()
    wait_until(lambda: len(engine.records) == seen + 6)
    engine.until_idle()
    closings = [record for record in engine.records[seen:] if isinstance(record, Closed)]
    assert [one.outcome for one in closings] == ["cancelled"] * 3
    assert all(one.generated_tokens < 1_500 for one in closings)


def test_headers_counters_and_journal_add_up_over_many_clients(engine: OpenAiEngine, client: OpenAI) -> None:
    def ask(number: int) -> tuple[int, int]:
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[{"role": "system", "content": LONG * (number % 3 + 1)}, {"role": "user", "content": str(number)}],
            max_tokens=4,
            stream=number % 2 == 0,
        )
        if number % 2 == 0:
            text_of(answer.parse())
        headers = told(answer.headers)
        return int(headers["x-luminet-prompt-tokens"]), int(headers["x-luminet-cached-tokens"])

    def counted() -> tuple[float, float]:
        with client._client.stream("GET", f"{engine.url}/metrics") as response:
            figures = counters(response.read().decode())
        return tuple(figures[f'vllm:prefix_cache_{name}_total{{model_name="demo"}}'] for name in ("queries", "hits"))  # type: ignore[return-value]

    engine.until_idle()
    before, seen = counted(), len(engine.records)
    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(ask, range(48)))
    engine.until_idle()
    prompt, cached = (sum(column) for column in zip(*pairs, strict=True))
    after = counted()
    assert (after[0] - before[0], after[1] - before[1]) == (prompt, cached)
    opened = [record for record in engine.records[seen:] if isinstance(record, Opened)]
    assert len(opened) == len(pairs)
    assert sum(record.prompt_tokens for record in opened) == prompt
    assert sum(record.cached_tokens for record in opened) == cached
    assert sum(sum(record.missed.values()) for record in opened) == prompt - cached


def test_an_answer_is_valid_json_whatever_the_model_says(client: OpenAI) -> None:
    extra = {"ignore_eos": True, "skip_special_tokens": False}
    answer = client.completions.with_raw_response.create(
        model=MODEL, prompt="\u0000\u2028\U0001f600", max_tokens=64, temperature=2, seed=1, logprobs=5, extra_body=extra
    )
    assert json.loads(answer.text)["usage"]["completion_tokens"] == 64
