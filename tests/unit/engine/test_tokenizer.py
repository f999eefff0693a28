"""Tokenizers as they are shipped: what is encoded, what ends an answer, and which bytes a token is."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.errors import BadModel, BadRequest
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.prompts.files import special_tokens
from tests.unit.engine.making import make_config
from tests.unit.engine.vocabularies import DEMO, make_words

TEXTS = ["", "Hello, wörld", "  two  spaces\n\tand a tab", "日本語 🎉🏳️‍🌈", "<|im_start|>user\nhi<|im_end|>", "\x00\x7f"]


@pytest.fixture(scope="module")
def demo() -> Tokenizer:
    return Tokenizer.from_folder(DEMO, read_config(DEMO))


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    return make_config(tmp_path, vocab_size=300)


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_it_encodes_and_decodes_as_transformers_does(text: str, demo: Tokenizer) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(DEMO)
    ids = demo.encode(text)
    assert ids == theirs(text)["input_ids"]
    assert demo.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert demo.decode(ids, skip_special=False) == text


def test_what_a_tokenizer_puts_around_a_text_can_be_left_out(tmp_path: Path, config: ModelConfig) -> None:
    words = Tokenizer.from_folder(make_words(tmp_path), config)
    assert words.encode("cats", add_special=False) == words.encode("cats")[1:]
    assert words.token_text(words.encode("cats")[0]) == "<s>"


@pytest.mark.parametrize("text", ["a\ud800", "\udc00b", "ab\ude00\ud83d"], ids=ascii)
def test_half_of_a_surrogate_pair_is_refused_by_the_fields_name(text: str, demo: Tokenizer) -> None:
    with pytest.raises(BadRequest, match=r"stop: half of a surrogate pair at character [012]"):
        demo.encode(text, field="stop")


def test_a_tokens_bytes_put_together_are_the_text(demo: Tokenizer, tmp_path: Path, config: ModelConfig) -> None:
    words = Tokenizer.from_folder(make_words(tmp_path), config)
    for text in TEXTS:
        assert b"".join(demo.token_bytes(token) for token in demo.encode(text)) == text.encode()
        spelt = b"".join(words.token_bytes(token) for token in words.encode(text, add_special=False))
        assert spelt.decode().removeprefix(" ") == text


def test_other_threads_run_while_a_long_text_is_encoded(demo: Tokenizer) -> None:
    text = "What does the module json do? " * 20_000
    gaps: list[float] = []
    encoding = threading.Thread(target=demo.encode, args=(text,))
    before = began = time.perf_counter()
    encoding.start()
    while encoding.is_alive():
        now = time.perf_counter()
        gaps.append(now - before)
        before = now
    assert max(gaps) < (time.perf_counter() - began) / 2


def test_half_of_a_character_is_bytes_and_no_text(demo: Tokenizer, tmp_path: Path, config: ModelConfig) -> None:
    words = Tokenizer.from_folder(make_words(tmp_path), config)
    assert words.token_bytes(3 + 0xE6) == b"\xe6"
    assert words.token_text(3 + 0xE6) == "�"
    assert any(demo.token_bytes(token) == b"\xe6" for token in range(demo.vocab_size))


def test_a_model_may_have_more_rows_than_its_tokenizer_has_tokens(tmp_path: Path) -> None:
    wide = Tokenizer.from_folder(make_words(tmp_path), make_config(tmp_path, vocab_size=512))
    assert wide.vocab_size == 512
    assert (wide.token_bytes(500), wide.token_text(500), wide.decode([500])) == (b"", "", "")


def test_a_token_the_model_does_not_have_is_refused_and_never_looked_up(tmp_path: Path) -> None:
    narrow = Tokenizer.from_folder(make_words(tmp_path), make_config(tmp_path, vocab_size=272))
    assert narrow.encode("the")
    with pytest.raises(BadRequest, match="prompt: token 275 is none of the model's 272"):
        narrow.encode("日")


@pytest.mark.parametrize(
    ("in_config", "generation", "tokenizer", "eos"),
    [
        (7, None, None, {7}),
        (None, None, None, set()),
        (7, {"eos_token_id": [8, 9]}, None, {7, 8, 9}),
        ([7, 8], {"eos_token_id": None}, "</s>", {2, 7, 8}),
        (None, {}, {"content": "</s>"}, {2}),
        (None, None, "<not a token>", set()),
    ],
)
def test_an_answer_ends_with_what_any_file_says(
    in_config: Any, generation: dict[str, Any] | None, tokenizer: Any, eos: set[int], tmp_path: Path
) -> None:
    make_words(tmp_path, eos_token=tokenizer)
    config = make_config(tmp_path, vocab_size=300, eos_token_id=in_config)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert Tokenizer.from_folder(tmp_path, config).eos_ids == eos


@pytest.mark.parametrize("eos", ["two", [2, "x"], 300, -1, True], ids=repr)
def test_an_end_that_is_no_token_is_named(eos: Any, tmp_path: Path) -> None:
    make_words(tmp_path)
    config = make_config(tmp_path, vocab_size=300, eos_token_id=eos)
    with pytest.raises(BadModel, match=r"config\.json: eos_token_id"):
        Tokenizer.from_folder(tmp_path, config)


def test_special_tokens_are_known_by_name_in_either_spelling(tmp_path: Path) -> None:
    make_words(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<other>", "pad_token": {"content": "<pad>"}}')
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def test_lengths_that_a_tokenizer_was_trained_with_cut_nothing(tmp_path: Path, config: ModelConfig) -> None:
    make_words(tmp_path)
    raw = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    raw.enable_truncation(4)
    raw.enable_padding(length=50)
    raw.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.from_folder(tmp_path, config).encode("a" * 20)) == 22


def test_a_folder_without_a_tokenizer_and_a_file_that_is_none(tmp_path: Path, config: ModelConfig) -> None:
    with pytest.raises(BadModel, match=r"tokenizer\.json: is missing"):
        Tokenizer.from_folder(tmp_path, config)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(BadModel, match=r"tokenizer\.json: is no tokenizer"):
        Tokenizer.from_folder(tmp_path, config)


def test_a_decoder_whose_text_could_not_be_streamed_is_refused(tmp_path: Path, config: ModelConfig) -> None:
    shutil.copy(DEMO / "tokenizer.json", tmp_path)
    path = tmp_path / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    steps = [document["decoder"], {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    path.write_text(json.dumps(document | {"decoder": {"type": "Sequence", "decoders": steps}}), encoding="utf-8")
    with pytest.raises(BadModel, match=r"decoder: a sequence of ByteLevel, Strip is not served"):
        Tokenizer.from_folder(tmp_path, config)
