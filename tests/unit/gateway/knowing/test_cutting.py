"""Pieces of a text come to the text's own tokens, whatever the tokenizer does to blanks and beginnings."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from engine_agent.gateway.knowing.cutting import CUT_TOKENS, Around, Cutter
from engine_agent.prompts.encoding import splitting_tokens
from tests.unit.gateway.knowing.saying import loaded

CORPUS = [
    "the sea was calm and the ship sailed on",
    "  two  blanks\n\n\tand lines, don't 12345",
    "Grüße aus Köln, 世界 and the others",
] * 20
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
KINDS = ("byte-level", "prepend", "metaspace-first", "metaspace-always", "unigram", "lowercase", "around")


@cache
def tokenizer(kind: str) -> Tokenizer:
    """One of those that models are shipped with, in small."""
    found = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE(unk_token="<s>"))
    match kind:
        case "prepend":
            found.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        case "metaspace-first":
            found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        case "metaspace-always" | "unigram":
            found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
            found.decoder = decoders.Metaspace()
        case "lowercase":
            found.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
            found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        case _:
            found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    trainer: trainers.Trainer = (
        trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<s>", show_progress=False)
        if kind == "unigram"
        else trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    found.train_from_iterator(CORPUS, trainer)
    if kind == "around":
        found.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    return found


def cutter(kind: str, least_piece: int = 8) -> Cutter:
    return Cutter(tokenizer(kind), splitting_tokens(tokenizer(kind)), least_piece=least_piece)


TEXT = st.lists(
    st.one_of(
        st.sampled_from([*SPECIAL, " ", "\n", "  ", "the sea", " ship", "don't", "<|im", "_start|>", "世界", "▁"]),
        st.text(max_size=8),
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
def test_a_special_token_is_where_a_text_can_be_cut(kind: str) -> None:
    assert cutter(kind).can_cut


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT)
def test_pieces_come_to_the_tokens_of_the_whole(kind: str, text: str) -> None:
    cut, whole = cutter(kind), tokenizer(kind).encode(text, add_special_tokens=False).ids
    pieces = cut.pieces(text)
    assert "".join(pieces) == text
    assert [token for piece in pieces for token in cut.tokens(piece)] == whole


@given(text=TEXT)
def test_the_demo_models_too(text: str) -> None:
    cut, chat = loaded().cutter, f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{text}"
    whole = loaded().bundle.tokenizer.encode(chat, add_special_tokens=False).ids
    assert [token for piece in cut.pieces(chat) for token in cut.tokens(piece)] == whole


@given(begin=TEXT, more=TEXT)
def test_a_longer_text_begins_with_the_same_pieces_but_for_the_last(begin: str, more: str) -> None:
    cut = cutter("byte-level")
    before = cut.pieces(begin)[:-1]
    # The end of one and the beginning of the other may be a special token together: it is in what was the last piece.
    assert cut.pieces(begin + more)[: len(before)] == before


def test_a_tokenizer_that_looks_across_its_special_tokens_is_not_cut() -> None:
    odd = Tokenizer(models.WordLevel({"<s>": 0, "a": 1, "b": 2}, unk_token="<s>"))
    odd.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True, normalized=False)])
    found = Cutter(odd, splitting_tokens(odd))
    assert not found.can_cut
    assert found.pieces("a <s> b") == ["a <s> b"]


def test_a_token_that_is_wrongly_named_is_found_out() -> None:
    found = Cutter(tokenizer("byte-level"), ["he"])
    assert not found.can_cut


def test_what_is_put_around_a_text_is_known() -> None:
    assert cutter("around").around == Around((0,), (1,))
    assert cutter("byte-level").around == Around()


def test_the_beginning_of_a_text_has_tokens_that_its_end_cannot_change() -> None:
    cut, text = loaded().cutter, "The sea was calm and the ship sailed on. " * 100
    whole, head = cut.tokens(text), cut.head_tokens(text, 1_000)
    assert len(head) > 100
    assert head == whole[: len(head)]
    assert cut.head_tokens(text, 10).tolist() == []
    assert cut.head_tokens(text, len(text)) == whole
    assert CUT_TOKENS < 100
