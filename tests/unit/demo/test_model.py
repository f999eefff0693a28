"""The model folder in the repository: complete, small, readable by `transformers`, and it writes."""

import json
import pydoc_data.topics
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from engine_agent.tools.training import folder, heldout
from engine_agent.tools.training.chats import Message, as_dicts, render
from engine_agent.tools.training.network import Llama
from engine_agent.tools.training.train import Plan
from engine_agent.tools.training.writing import answer, write

FILES = {
    "README.md",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "heldout.jsonl",
    "model.safetensors",
    "quality-torch-cpu.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "training.json",
}
BOUND = 1.7  # bits per byte: the shipped weights have about 1.4, those of a broken model 3 and more
CHAT = (
    Message("system", "You answer questions about Python, briefly."),
    Message("user", "What does `textwrap.dedent` do?"),
    Message("assistant", "It removes blanks.\n"),
    Message("user", "  And `len`?"),
)


@cache
def model() -> Llama:
    return folder.read_model()


@cache
def tokenizer() -> Tokenizer:
    return folder.read_tokenizer()


@cache
def record() -> Any:
    return json.loads((folder.PATH / "training.json").read_text(encoding="utf-8"))


@cache
def known_words() -> set[str]:
    texts = [*pydoc_data.topics.topics.values(), *(document.text for document in heldout.load())]
    return set(words_of(" ".join(texts)))


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]{2,}", text.lower())


def test_the_folder_is_complete_and_small() -> None:
    files = [path for path in folder.PATH.iterdir() if path.is_file()]
    assert {path.name for path in files} == FILES
    assert sum(path.stat().st_size for path in files) <= 8_000_000
    assert heldout.PATH.stat().st_size <= 250_000


def test_the_record_says_what_it_was_made_of_and_how() -> None:
    assert len(record()["corpus"]["sha256"]) == 64
    assert record()["training"]["parameters"] == folder.parameters(model())
    assert record()["training"]["plan"] == json.loads(json.dumps(asdict(Plan())))
    assert [stage["steps"] for stage in record()["training"]["stages"]] == [stage.steps for stage in Plan().stages]


def test_the_card_has_the_figures_of_the_record() -> None:
    card = (folder.PATH / "README.md").read_text(encoding="utf-8")
    assert record()["corpus"]["sha256"] in card
    assert f"{record()['held_out']['bits_per_byte']:.3f} bits per byte" in card


def test_transformers_loads_it_unchanged_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder.PATH, dtype=torch.float32)
    tokens = torch.tensor([tokenizer().encode(heldout.load()[0].text).ids[:300]])
    with torch.inference_mode():
        assert torch.allclose(theirs(tokens).logits, model()(tokens), atol=1e-4)
    ends = {tokenizer().token_to_id("<|im_end|>"), tokenizer().token_to_id("<|endoftext|>")}
    assert set(theirs.generation_config.eos_token_id) == ends
    assert theirs.config.dtype == torch.float32
    assert theirs.config.max_position_embeddings >= 8192


def test_transformers_tokenizes_and_renders_chats_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder.PATH)
    text = heldout.load()[-1].text + "<|im_end|>\n  é “quoted” 日本"
    assert theirs(text)["input_ids"] == tokenizer().encode(text).ids
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.model_max_length == 8192
    for prompt in (False, True):
        said = theirs.apply_chat_template(as_dicts(CHAT), tokenize=False, add_generation_prompt=prompt)
        assert said == render(CHAT, add_generation_prompt=prompt)


def test_it_reads_held_out_prose_and_code_well() -> None:
    chosen = [next(one for one in heldout.load() if one.kind == kind) for kind in ("topic", "source")]
    assert heldout.bits_per_byte(model(), tokenizer(), chosen) < BOUND
    torch.manual_seed(0)
    assert heldout.bits_per_byte(Llama(model().shape), tokenizer(), chosen) > 3


def test_a_long_document_is_read_as_well_at_its_end_as_at_its_beginning() -> None:
    by_position = record()["held_out"]["perplexity_by_position"]
    assert by_position["4096-8192"] < 1.1 * by_position["512-1024"]


def test_rounding_the_weights_changed_nothing_to_speak_of() -> None:
    held_out = record()["held_out"]
    assert abs(held_out["bits_per_byte"] - held_out["bits_per_byte_before_rounding"]) < 0.005


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_writes_words(temperature: float) -> None:
    written, _ = write(model(), tokenizer(), 'The "with" statement is used to', tokens=60, temperature=temperature)
    words = words_of(written)
    assert len(words) >= 15
    assert sum(word in known_words() for word in words) >= 0.8 * len(words)


@pytest.mark.parametrize("name", ["textwrap.dedent", "len", "os.path.join"])
def test_it_answers_about_what_was_asked_and_ends_its_turn(name: str) -> None:
    said, ended = answer(model(), tokenizer(), [Message("user", f"What does `{name}` do?")])
    assert ended
    assert said.startswith(f"`{name}`: ")


def test_a_held_out_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    documents = [heldout.HeldOut("page:m", "page", "Line\u2028and “quotes”\n\n\ttab\n")]
    heldout.save(documents, tmp_path / "heldout.jsonl")
    assert heldout.load(tmp_path / "heldout.jsonl") == documents
    assert len(heldout.load()) >= 24
