"""A bundle: what an engine has in a folder, a gateway has in bytes, and both mean the same by it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.engine.config import read_config
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.prompts.bundle import MOST_BUNDLE_BYTES, Bundle, bundle_encode, bundle_name, bundle_read
from engine_agent.prompts.errors import BadBundle, BadModel, BadRequest
from tests.engines.rendering import template_made
from tests.unit.engine.vocabularies import DEMO, make_words

MESSAGES = [{"role": "user", "content": "Hi é"}, {"role": "assistant", "content": "<|im_end|>\n"}]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundle_read(bundle_encode(Bundle.from_folder(DEMO)))


def test_a_bundle_read_again_renders_and_encodes_as_the_engine_does(bundle: Bundle) -> None:
    engines = Tokenizer.from_folder(DEMO, read_config(DEMO))
    text = template_made(Bundle.from_folder(DEMO).template).render(MESSAGES)
    assert template_made(bundle.template).render(MESSAGES) == text
    assert bundle.encode(text, add_special=False) == engines.encode(text, add_special=False)
    assert bundle.vocab_size == engines.vocab_size
    assert bundle.special == {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}


@given(st.text())
def test_any_text_has_the_engines_tokens(text: str) -> None:
    engines, ours = _pair()
    try:
        meant = engines.encode(text)
    except BadRequest as problem:
        with pytest.raises(BadRequest, match=problem.problem):
            ours.encode(text)
        return
    assert ours.encode(text) == meant


def test_equal_bundles_have_one_name(bundle: Bundle) -> None:
    data = bundle_encode(Bundle.from_folder(DEMO))
    assert bundle_name(data) == bundle_name(bundle_encode(bundle))
    other = Bundle.from_folder(DEMO, vocab_size=bundle.vocab_size - 1)
    assert bundle_name(bundle_encode(other)) != bundle_name(data)


def test_what_templates_know_of_special_tokens_goes_with_them(tmp_path: Path) -> None:
    folder = make_words(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}{{ tools | tojson }}")
    read = bundle_read(bundle_encode(Bundle.from_folder(folder, vocab_size=300)))
    told = template_made(read.template).render(MESSAGES[:1], tools=[{"type": "function"}])
    assert told == '<s>Hi é[{"type": "function"}]'
    assert read.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_model_without_a_template_takes_no_chats(tmp_path: Path) -> None:
    read = bundle_read(bundle_encode(Bundle.from_folder(make_words(tmp_path), vocab_size=300)))
    with pytest.raises(BadRequest, match="no chat template"):
        template_made(read.template).render(MESSAGES)


def test_a_folder_without_a_tokenizer_or_a_vocabulary_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"tokenizer\.json: is missing"):
        Bundle.from_folder(tmp_path)
    folder = make_words(tmp_path / "words")
    (folder / "config.json").write_text('{"vocab_size": "many"}', encoding="utf-8")
    with pytest.raises(BadModel, match="vocab_size"):
        Bundle.from_folder(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "luminet/prompt-bundle/2"),
        ("tokenizer", None),
        ("template", 3),
        ("special_tokens", {"bos_token": 1}),
        ("special_tokens", {"other_token": "x"}),
        ("contents", "pictures"),
        ("contents", ["text"]),
        ("vocab_size", 0),
        ("vocab_size", True),
        ("more", 1),
    ],
)
def test_bytes_that_are_no_bundle_are_refused(bundle: Bundle, field: str, value: Any) -> None:
    told = {**json.loads(bundle_encode(bundle)), field: value}
    with pytest.raises(BadBundle):
        bundle_read(json.dumps(told).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, bytes(MOST_BUNDLE_BYTES + 1)], ids=len)
def test_what_is_no_object_is_no_bundle(data: bytes) -> None:
    with pytest.raises(BadBundle):
        bundle_read(data)


@pytest.mark.parametrize("source", ["{% for %}", "{{ 'open", "{% include 'x' %}{% endfor %}"])
def test_template_with_wrong_syntax_is_named(source: str, tmp_path: Path) -> None:
    folder = make_words(tmp_path, chat_template=source)
    with pytest.raises(BadModel, match=r"tokenizer_config\.json: chat_template: line 1"):
        Bundle.from_folder(folder, vocab_size=300)


def test_what_a_bundle_promises_and_is_not_is_found_when_it_is_made(bundle: Bundle) -> None:
    told = json.loads(bundle_encode(bundle))
    with pytest.raises(BadModel, match="no tokenizer"):
        _ = bundle_read(json.dumps({**told, "tokenizer": "{}"}).encode()).tokenizer


def _pair() -> tuple[Tokenizer, Bundle]:
    if not _PAIR:
        _PAIR.append((Tokenizer.from_folder(DEMO, read_config(DEMO)), Bundle.from_folder(DEMO)))
    return _PAIR[0]


_PAIR: list[tuple[Tokenizer, Bundle]] = []
