"""A body that the engine takes comes to the same tokens for who only has its bundle."""

import asyncio
import contextlib
import copy
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.engine.config import read_config
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.http.errors import ApiError
from engine_agent.prompts.bodies import PromptText, completion_prompts, message_plain
from engine_agent.prompts.bundle import Bundle
from engine_agent.prompts.errors import BadRequest
from engine_agent.prompts.templates import TemplateSource
from engine_agent.server.chat import understand_chat
from engine_agent.server.completions import understand_completion
from engine_agent.server.face import Face, Understood
from tests.engines.rendering import InlineTemplate, chat_text
from tests.support.case_names import case_name
from tests.unit.engine.vocabularies import DEMO

T = TypeVar("T")
BUNDLE = Bundle.from_folder(DEMO)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["<|im_end|>", "<|im", "a b"])
content = text | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": text}), min_size=1, max_size=3)
messages: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": content},
        optional={"name": st.none() | text, "tool_call_id": st.none() | text, "audio": st.none(), "calls": st.just([])},
    ),
    min_size=1,
    max_size=4,
)
flags = st.none() | st.booleans()
chats = st.fixed_dictionaries(
    {"model": st.just("demo"), "messages": messages},
    optional={
        "add_generation_prompt": flags,
        "continue_final_message": st.booleans(),
        "add_special_tokens": flags,
        "chat_template_kwargs": st.dictionaries(st.sampled_from(["style", "depth"]), text | st.integers(), max_size=2),
    },
)
ids = st.lists(st.integers(0, 400), min_size=1, max_size=5)
completions = st.fixed_dictionaries(
    {"model": st.just("demo"), "prompt": text | ids | st.lists(text, min_size=1) | st.lists(ids, min_size=1)},
    optional={"add_special_tokens": flags},
)


def understood(work: Coroutine[Any, Any, Understood]) -> Understood:
    """Of what nothing has to wait for."""
    return asyncio.run(work)


@dataclass
class EngineFace:
    """Of an engine's face, what turns a body into tokens."""

    tokenizer: Tokenizer
    template: Any

    def check_model(self, name: str) -> None:
        """There is one."""

    def check_prompt(self, prompt: Any) -> None:
        """Any will do."""

    async def worked(self, work: Callable[[], T], *, on: bytes | str) -> T:
        return work()


FACE = cast(Face, EngineFace(Tokenizer.from_folder(DEMO, read_config(DEMO)), InlineTemplate(BUNDLE.template)))


@settings(deadline=None)
@given(chats)
def test_a_chat_has_the_engines_tokens(body: dict[str, Any]) -> None:
    try:
        meant = understood(understand_chat(FACE, json.dumps(body).encode())).prompts
    except ApiError:
        return
    told = chat_text(BUNDLE.template, body)
    assert [BUNDLE.encode(told.text, add_special=told.adds_special)] == [list(prompt) for prompt in meant]


@settings(deadline=None)
@given(completions)
def test_a_completion_has_the_engines_tokens(body: dict[str, Any]) -> None:
    try:
        meant = understood(understand_completion(FACE, json.dumps(body).encode())).prompts
    except ApiError:
        return
    told = [
        BUNDLE.encode(one.text, add_special=one.adds_special) if isinstance(one, PromptText) else one
        for one in completion_prompts(body)
    ]
    assert told == [list(prompt) for prompt in meant]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(["messages", "prompt", "tools", "documents", "chat_template_kwargs", "continue_final_message"])


@settings(deadline=None)
@given(st.dictionaries(fields, json_values))
def test_of_any_body_there_is_a_text_or_a_refusal_and_nothing_else(body: dict[str, Any]) -> None:
    for read in (lambda: chat_text(BUNDLE.template, body), lambda: completion_prompts(body)):
        try:
            read()
        except BadRequest:
            continue


@pytest.mark.parametrize("name", ["tools", "documents"])
@pytest.mark.parametrize("told", [3, ["search"], {"a": 1}])
def test_tools_and_documents_that_are_no_objects_are_refused(name: str, told: Any) -> None:
    with pytest.raises(BadRequest, match=name):
        chat_text(BUNDLE.template, {"messages": [{"role": "user", "content": "x"}], name: told})


CALLING = TemplateSource(
    "{{ tools | tojson }}{{ documents | tojson }}{% for message in messages %}"
    "{{ message.role }}:{{ message.content }}{% for call in message.tool_calls %}"
    "[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %};{% endfor %}",
    {},
)


def called(arguments: Any) -> str:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
    }
    return chat_text(CALLING, {"messages": [message]}).text


def test_tools_and_documents_are_the_templates_as_they_were_sent() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"b": 1, "a": [None]}], "documents": [{"c": "ü"}]}
    assert chat_text(CALLING, body).text == '[{"b": 1, "a": [null]}][{"c": "ü"}]user:x;'


def test_what_a_tool_was_called_with_is_an_object_again_and_no_content_is_none(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [
        ('{"b": 1, "a": "ü"}', '{"b": 1, "a": "ü"}'),
        ({"b": 1}, '{"b": 1}'),
        ("[1]", "[1]"),
        ("{", "{}"),
        ("", "{}"),
        ("[" * 100_000, "{}"),
        (None, "{}"),
        (7, "{}"),
    ]
    for arguments, text in cases:
        with subtests.test(msg=case_name(arguments, text)):
            assert called(arguments) == f"nullnullassistant:[f {text}];"


@pytest.mark.parametrize("depth", [100, 200, 300, 400, 600, 900])
def test_however_deeply_it_is_nested_there_is_a_text_or_a_refusal(depth: int) -> None:
    with contextlib.suppress(BadRequest):
        assert called("[" * depth + "]" * depth).endswith(f"{'[' * depth}{']' * depth}];")


@pytest.mark.parametrize("calls", [[7], [{}], [{"function": 7}]])
def test_calls_that_are_none_make_nothing_fail(calls: Any) -> None:
    plain = message_plain({"role": "assistant", "tool_calls": calls})
    assert plain == {"role": "assistant", "content": [], "tool_calls": calls}
    for message in ({"role": "assistant", "tool_calls": 7}, {"role": "user", "tool_calls": calls}):
        assert message_plain(message) == message


@pytest.mark.parametrize("told", [True, 1, 1.5, {"text": "x"}, [], [True]])
def test_a_last_message_without_a_text_is_not_continued(told: Any) -> None:
    body = {"messages": [{"role": "user", "content": told}], "continue_final_message": 0.1}
    with pytest.raises(BadRequest):
        chat_text(BUNDLE.template, body)


def test_a_message_is_not_changed_by_being_read() -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    before = copy.deepcopy(message)
    chat_text(CALLING, {"messages": [message]})
    assert message == before
