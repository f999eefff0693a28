"""A body that the engine takes comes to the same tokens for who only has its bundle."""

import json
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.engine.config import read_config
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.http.errors import ApiError
from engine_agent.prompts.bodies import PromptText, chat_text, completion_prompts
from engine_agent.prompts.bundle import Bundle
from engine_agent.prompts.errors import BadRequest
from engine_agent.server.chat import understand_chat
from engine_agent.server.completions import understand_completion
from engine_agent.server.face import Face
from tests.unit.engine.vocabularies import DEMO

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


@dataclass
class EngineFace:
    """Of an engine's face, what turns a body into tokens."""

    tokenizer: Tokenizer
    template: Any

    def check_model(self, name: str) -> None:
        """There is one."""

    def check_prompt(self, prompt: Any) -> None:
        """Any will do."""


FACE = cast(Face, EngineFace(Tokenizer.from_folder(DEMO, read_config(DEMO)), BUNDLE.template))


@settings(deadline=None)
@given(chats)
def test_a_chat_has_the_engines_tokens(body: dict[str, Any]) -> None:
    try:
        meant = understand_chat(FACE, json.dumps(body).encode()).prompts
    except ApiError:
        return
    told = chat_text(BUNDLE.template, body)
    assert [BUNDLE.encode(told.text, add_special=told.adds_special)] == [list(prompt) for prompt in meant]


@settings(deadline=None)
@given(completions)
def test_a_completion_has_the_engines_tokens(body: dict[str, Any]) -> None:
    try:
        meant = understand_completion(FACE, json.dumps(body).encode()).prompts
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
fields = st.sampled_from(["messages", "prompt", "tools", "chat_template_kwargs", "continue_final_message"])


@settings(deadline=None)
@given(st.dictionaries(fields, json_values))
def test_of_any_body_there_is_a_text_or_a_refusal_and_nothing_else(body: dict[str, Any]) -> None:
    for read in (lambda: chat_text(BUNDLE.template, body), lambda: completion_prompts(body)):
        try:
            read()
        except BadRequest:
            continue


@pytest.mark.parametrize("tools", [3, ["search"], {"a": 1}])
def test_tools_that_are_no_objects_are_refused(tools: Any) -> None:
    with pytest.raises(BadRequest, match="tools"):
        chat_text(BUNDLE.template, {"messages": [{"role": "user", "content": "x"}], "tools": tools})
