"""Text from tokens as they come: final, and together what `decode` would say."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.engine.config import read_config
from engine_agent.engine.tokenizer import Tokenizer
from tests.unit.engine.making import make_config, make_tokenizer
from tests.unit.engine.vocabularies import DEMO, make_metaspace, make_words

KINDS: dict[str, Callable[[Path], object]] = {
    "words": make_words,
    "metaspace": make_metaspace,
    "letters": make_tokenizer,
}
BYTE = 3  # where the 256 bytes begin among words


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    found = {"demo": Tokenizer.from_folder(DEMO, read_config(DEMO))}
    for name, make in KINDS.items():
        folder = tmp_path_factory.mktemp(name)
        config = make_config(folder, vocab_size=300)
        make(folder)
        found[name] = Tokenizer.from_folder(folder, config)
    return found


@pytest.mark.parametrize("skip_special", [True, False])
@pytest.mark.parametrize("kind", ["demo", *KINDS])
@given(data=st.data())
def test_all_pieces_together_are_what_decode_says(
    kind: str, skip_special: bool, data: st.DataObject, all_kinds: dict[str, Tokenizer]
) -> None:
    tokenizer = all_kinds[kind]
    tokens = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    speaking = tokenizer.detokenizer(skip_special)
    pieces = [speaking.push(token) for token in tokens]
    assert "".join(pieces) + speaking.finish() == tokenizer.decode(tokens, skip_special)
    assert speaking.finish() == ""


@pytest.mark.parametrize("kind", ["demo", "words"])
@given(text=st.text(max_size=30))
def test_no_piece_has_half_of_a_character(kind: str, text: str, all_kinds: dict[str, Tokenizer]) -> None:
    tokenizer = all_kinds[kind]
    speaking = tokenizer.detokenizer()
    pieces = [speaking.push(token) for token in tokenizer.encode(text)] + [speaking.finish()]
    assert all("�" not in piece or "�" in text for piece in pieces)
    assert "".join(pieces) == tokenizer.decode(tokenizer.encode(text))


def test_a_byte_level_character_is_said_with_its_last_byte(all_kinds: dict[str, Tokenizer]) -> None:
    demo = all_kinds["demo"]
    speaking = demo.detokenizer()
    pieces = [speaking.push(token) for token in demo.encode("a🎉b")]
    assert "🎉" in pieces[-2:]
    assert "".join(pieces) == "a🎉b"


def test_bytes_among_words_wait_for_the_next_word(all_kinds: dict[str, Tokenizer]) -> None:
    words = all_kinds["words"]
    speaking = words.detokenizer()
    *party, last = [BYTE + byte for byte in "🎉".encode()] + words.encode("a", add_special=False)[-1:]
    assert [speaking.push(token) for token in party] == ["", "", "", ""]
    assert speaking.push(last) == "🎉a"


def test_a_bad_byte_spoils_its_neighbours_as_in_decode(all_kinds: dict[str, Tokenizer]) -> None:
    words = all_kinds["words"]
    speaking = words.detokenizer()
    tokens = [BYTE + byte for byte in "é".encode() + b"\xff"]
    assert "".join(map(speaking.push, tokens)) + speaking.finish() == words.decode(tokens) == "���"


@pytest.mark.parametrize("kind", ["demo", "words"])
def test_a_copy_goes_its_own_way(kind: str, all_kinds: dict[str, Tokenizer]) -> None:
    tokenizer = all_kinds[kind]
    trunk = tokenizer.encode("the 日 cats 🎉")[:-1]
    first = tokenizer.detokenizer()
    said = "".join(map(first.push, trunk))
    second = first.copy()
    for speaking, ending in ((first, " a"), (second, "b.")):
        more = tokenizer.encode(ending, add_special=False)
        whole = said + "".join(map(speaking.push, more)) + speaking.finish()
        assert whole == tokenizer.decode(trunk + more)


def test_special_tokens_are_said_only_if_asked_for(all_kinds: dict[str, Tokenizer]) -> None:
    demo = all_kinds["demo"]
    tokens = demo.encode("hi<|im_end|>there")
    assert "".join(map(demo.detokenizer(True).push, tokens)) == "hithere"
    assert "".join(map(demo.detokenizer(False).push, tokens)) == "hi<|im_end|>there"
