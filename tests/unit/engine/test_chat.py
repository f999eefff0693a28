"""Chat templates in the sandbox, against `transformers` and against people who mean harm."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine_agent.prompts.chat import ChatTemplate
from engine_agent.prompts.errors import BadRequest
from engine_agent.prompts.files import special_tokens, template_source
from tests.unit.engine.vocabularies import DEMO, make_words

HEADERS = """{{- bos_token }}
{%- set begin = namespace(at=0, system='You are terse.') %}
{%- if messages[0].role == 'system' %}
    {%- set begin.system = messages[0].content | trim %}
    {%- set begin.at = 1 %}
{%- endif %}
{{- '<|head|>system<|end_head|>\\n\\n' + begin.system + '<|eot|>' }}
{%- for message in messages[begin.at:] %}
    {%- if message.role not in ('user', 'assistant', 'tool') %}
        {{- raise_exception('no role is called ' + message.role) }}
    {%- endif %}
    {{- '<|head|>' + message.role + '<|end_head|>\\n\\n' + message.content | trim + '<|eot|>' }}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|end_head|>\\n\\n' }}
{%- endif %}
"""
THINKING = """{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
INSTRUCTIONS = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{ raise_exception('roles must alternate user/assistant/…') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ ' [INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}
{% generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}
{% else %}{% break %}
{% endif %}
{% endfor %}"""
PARTS = """{% for message in messages %}{{ message.role }}:
{%- if message['content'] is string %} {{ message['content'] }}
{%- else %}{% for part in message['content'] %} [{{ part['text'] }}]{% endfor %}{% endif %};
{% endfor %}"""
TEMPLATES = {"headers": HEADERS, "thinking": THINKING, "instructions": INSTRUCTIONS, "parts": PARTS}

ASKED = [{"role": "user", "content": " Hello <there> “world” \n"}]
TALKED = [*ASKED, {"role": "assistant", "content": "<think>so</think>\nwell, "}]
CHATS: dict[str, list[dict[str, Any]]] = {
    "asked": ASKED,
    "talked": TALKED,
    "asked again": [*TALKED, {"role": "user", "content": "日本 {{ 1 }} {% break %}"}],
}


def make_template(folder: Path, source: str | None, **config: Any) -> ChatTemplate:
    make_words(folder, **config)
    if source is not None:
        (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    return template_of(folder)


def template_of(folder: Path) -> ChatTemplate:
    return ChatTemplate.from_source(template_source(folder)[1], special_tokens(folder))


def theirs(folder: Path, messages: list[dict[str, Any]], **asked: Any) -> str:
    from transformers import AutoTokenizer

    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False, **asked)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("begins", [True, False], ids=["begins an answer", "does not"])
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_a_chat_is_written_as_transformers_writes_it(
    source: str, chat: list[dict[str, Any]], begins: bool, tmp_path: Path
) -> None:
    found = make_template(tmp_path, source).render(chat, add_generation_prompt=begins)
    assert found == theirs(tmp_path, chat, add_generation_prompt=begins)


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_a_last_message_is_continued_as_transformers_continues_it(source: str, tmp_path: Path) -> None:
    template = make_template(tmp_path, source)
    chat = [*ASKED, {"role": "assistant", "content": "so\nwell, "}]
    found = template.render(chat, add_generation_prompt=False, continue_final_message=True)
    assert found == theirs(tmp_path, chat, continue_final_message=True)
    assert found.rstrip().endswith("well,")


def test_the_demo_models_template_is_its_own() -> None:
    template = template_of(DEMO)
    assert template.render(ASKED) == theirs(DEMO, ASKED, add_generation_prompt=True)


def test_arguments_reach_a_template_and_may_name_other_special_tokens(tmp_path: Path) -> None:
    template = make_template(tmp_path, THINKING)
    asked: dict[str, Any] = {"enable_thinking": False}
    assert template.render(ASKED, kwargs=asked) == theirs(tmp_path, ASKED, add_generation_prompt=True, **asked)
    assert "</think>" not in template.render(ASKED)
    other = make_template(tmp_path / "other", HEADERS)
    assert other.render(ASKED).startswith("<s>")
    assert other.render(ASKED, kwargs={"bos_token": "<b>"}).startswith("<b>")


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt"])
def test_arguments_cannot_stand_in_for_what_is_asked_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=f"chat_template_kwargs: {name}"):
        make_template(tmp_path, THINKING).render(ASKED, kwargs={name: None})


PARTED = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]


def test_text_in_parts_is_given_as_the_template_takes_it(tmp_path: Path) -> None:
    assert "one\ntwo" in make_template(tmp_path / "text", HEADERS).render(PARTED)
    assert "one\ntwo" in make_template(tmp_path / "thinking", THINKING).render(PARTED)  # it would have left them out
    either = make_template(tmp_path / "either", PARTS)
    assert either.render(PARTED) == theirs(tmp_path / "either", PARTED)
    loops = "{% for m in messages %}{% for content in m.content %}[{{ content.text }}]{% endfor %}{% endfor %}"
    assert (
        make_template(tmp_path / "parts", loops).render([*PARTED, {"role": "user", "content": "x"}]) == "[one][two][x]"
    )


def test_the_last_of_several_parts_is_continued(tmp_path: Path) -> None:
    template = make_template(tmp_path, PARTS)
    found = template.render(PARTED, add_generation_prompt=False, continue_final_message=True)
    assert found == theirs(tmp_path, PARTED, continue_final_message=True) == "user: [one] [two"


def test_messages_are_left_as_they_are(tmp_path: Path) -> None:
    before = json.dumps(PARTED)
    make_template(tmp_path, PARTS).render(PARTED, add_generation_prompt=False, continue_final_message=True)
    assert json.dumps(PARTED) == before


def test_a_file_of_its_own_counts_before_the_tokenizers_and_default_before_other_names(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]
    assert make_template(tmp_path / "a", None, chat_template="text").render(ASKED) == "text"
    assert make_template(tmp_path / "b", None, chat_template=several).render(ASKED) == "default"
    assert make_template(tmp_path / "c", "own", chat_template="text").render(ASKED) == "own"


@pytest.mark.parametrize("config", [{}, {"chat_template": [{"name": "tool_use", "template": "tools"}]}], ids=str)
def test_a_model_without_a_template_says_where_to_go(config: dict[str, Any], tmp_path: Path) -> None:
    template = make_template(tmp_path, None, **config)
    with pytest.raises(BadRequest, match="messages: this model has no chat template: use /v1/completions"):
        template.render(ASKED)


BAD_CHATS: list[tuple[str, list[dict[str, Any]], str]] = [
    (HEADERS, [], "must be one message or more"),
    (HEADERS, [{"role": "king", "content": "x"}], "no role is called king"),
    (INSTRUCTIONS, [*ASKED, *ASKED], "roles must alternate"),
    (INSTRUCTIONS, [{"role": "user"}], "content"),
    (INSTRUCTIONS, [{"role": "user", "content": None}], "the model's chat template"),
    (HEADERS, [{"role": "user", "content": [{"type": "image_url"}]}], "a part of a content is no text"),
]


@pytest.mark.parametrize(("source", "messages", "said"), BAD_CHATS)
def test_what_a_template_refuses_is_the_requests_fault(
    source: str, messages: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match=f"messages: .*{said}"):
        make_template(tmp_path, source).render(messages)


HARM = [
    "{{ messages.append(1) }}",
    "{{ messages.__class__.__mro__ }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ ''.__class__.__base__.__subclasses__() }}",
    "{% for a in range(1000000) %}a{% endfor %}",
    "{{ 'x' * 100000000 }}",
    "{{ 100000000 * [1] }}",
    "{{ 9 ** 999999999 }}",
    "{% include '/etc/passwd' %}",
    "{% for a in range(99999) %}{{ messages[0].content * 1000 }}{% endfor %}",
    "{{ 1 / 0 }}",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
]


@pytest.mark.parametrize("source", HARM)
def test_a_template_reaches_nothing_and_makes_little_large(source: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="messages"):
        make_template(tmp_path, source).render(ASKED)


def test_pieces_without_text_end_nothing(tmp_path: Path) -> None:
    template = make_template(tmp_path, "{% for a in range(5000) %}{{ '' }}{% endfor %}{{ messages[0].role }}")
    assert template.render(ASKED) == "user"


def test_a_text_is_never_a_template_itself(tmp_path: Path) -> None:
    text = "{{ raise_exception('no') }}{% generation %}"
    assert text in make_template(tmp_path, THINKING).render([{"role": "user", "content": text}])


UNCONTINUED: list[tuple[list[dict[str, Any]], str]] = [
    (TALKED, "leaves out some of the last message's text"),
    ([{"role": "assistant", "content": None}], "the last message has no text"),
    ([{"role": "assistant"}], "the last message has no text"),
]


@pytest.mark.parametrize(("messages", "said"), UNCONTINUED)
def test_a_last_message_that_cannot_be_continued_is_refused(
    messages: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    template = make_template(tmp_path, THINKING)
    with pytest.raises(BadRequest, match=f"continue_final_message: .*{said}"):
        template.render(messages, add_generation_prompt=False, continue_final_message=True)


def test_an_answer_is_begun_or_continued_and_not_both(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="continue_final_message: cannot go with add_generation_prompt"):
        make_template(tmp_path, THINKING).render(ASKED, continue_final_message=True)
