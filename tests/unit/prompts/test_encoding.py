"""Where a text can be cut: in front of such a token it comes to the tokens of its two parts, in tokenizers of every
kind that models ship.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from engine_agent.prompts.encoding import encode_text, splitting_tokens, tokenizer_read
from engine_agent.prompts.errors import BadModel, BadRequest
from tests.unit.engine.vocabularies import DEMO, WORDS, make_metaspace, make_words

MARKS = ["<|a|>", "<|b|>", "[X]"]
VOCABULARY = 100_000


def demo() -> Tokenizer:
    return tokenizer_read((DEMO / "tokenizer.json").read_text(encoding="utf-8"), "demo")


def words(folder: Path) -> Tokenizer:
    return _read(make_words(folder))


def metaspace(folder: Path) -> Tokenizer:
    return _read(make_metaspace(folder))


def _read(folder: Path) -> Tokenizer:
    return tokenizer_read((folder / "tokenizer.json").read_text(encoding="utf-8"), folder)


def made(prefix: str = "always", normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """Words behind `▁`, as newer Llamas have them."""
    vocabulary = {name: number for number, name in enumerate(["<unk>", *WORDS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


KINDS: dict[str, Callable[[Path], Tokenizer]] = {
    "byte-level": lambda folder: demo(),
    "words": words,
    "metaspace": metaspace,
    "prepended-first": lambda folder: made("first"),
    "prepended-never": lambda folder: made("never"),
    "lower-case": lambda folder: made("first", normalizers.Sequence([normalizers.Lowercase(), normalizers.Strip()])),
}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    found = KINDS[request.param](tmp_path)
    found.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in MARKS])
    return found


ORDINARY = st.sampled_from(["the cat", " sat", "  ", "\n", "e", ".", "<|", "|>", "É"])
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def _cuts_are_exact(tokenizer: Tokenizer, splitting: st.SearchStrategy[str], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(splitting | ORDINARY | ANY, max_size=8))
    before, after = "".join(pieces), data.draw(splitting) + "".join(data.draw(st.permutations(pieces)))
    assert _encoded(tokenizer, before + after) == _encoded(tokenizer, before) + _encoded(tokenizer, after)


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    return encode_text(tokenizer, text, add_special=False, vocab_size=VOCABULARY)


def test_a_text_cut_in_front_of_a_splitting_token_has_the_tokens_of_its_parts(tokenizer: Tokenizer) -> None:
    splitting = splitting_tokens(tokenizer)
    assert set(MARKS) <= splitting
    _cuts_are_exact(tokenizer, st.sampled_from(sorted(splitting)))


def test_a_token_of_which_that_cannot_be_said_for_sure_is_none(subtests: pytest.Subtests) -> None:
    cases: list[AddedToken] = [
        AddedToken("<|c|>", lstrip=True, normalized=False),
        AddedToken("<|c|>", rstrip=True, normalized=False),
        AddedToken("<|c|>", single_word=True, normalized=False),
        AddedToken("word", normalized=False),
        AddedToken(" <|c|>", normalized=False),
        AddedToken("|a|", normalized=False),
        AddedToken("|><|", normalized=False),
        AddedToken("<<", normalized=False),
    ]
    for token in cases:
        with subtests.test(msg=repr(token)):
            tokenizer = demo()
            tokenizer.add_special_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
            tokenizer.add_tokens([token])
            assert token.content not in splitting_tokens(tokenizer)
            assert "[X]" in splitting_tokens(tokenizer)


def test_where_texts_are_normalised_first_a_token_looked_for_afterwards_is_none() -> None:
    tokenizer = made(normalizer=normalizers.Lowercase())
    tokenizer.add_tokens([AddedToken("<|c|>", normalized=True), AddedToken("<|d|>", normalized=False)])
    assert splitting_tokens(tokenizer) == {"<|d|>"}


def test_a_text_is_neither_cut_off_nor_filled_up() -> None:
    cut = demo()
    cut.enable_truncation(4)
    cut.enable_padding(length=40)
    assert encode_text(tokenizer_read(cut.to_str(), "cut"), "a cat " * 9, add_special=True, vocab_size=VOCABULARY) == (
        encode_text(demo(), "a cat " * 9, add_special=True, vocab_size=VOCABULARY)
    )


def test_what_is_no_tokenizer_is_named() -> None:
    with pytest.raises(BadModel, match="here: is no tokenizer"):
        tokenizer_read("{}", "here")


@pytest.mark.parametrize(("text", "problem"), [("a\ud800", "surrogate pair at character 1"), ("cat", "none of the")])
def test_what_has_no_tokens_of_the_model_is_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem) as refused:
        encode_text(demo(), text, add_special=False, vocab_size=3, field="messages")
    assert refused.value.field == "messages"
