"""A model's tokenizer as it is shipped: text to tokens, tokens to text, and which tokens end an answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engine_agent.engine.config import CONFIG, ModelConfig
from engine_agent.engine.detokenizer import Detokenizer, make_detokenizer
from engine_agent.engine.errors import BadModel, BadRequest
from engine_agent.engine.fields import read_object
from engine_agent.engine.spelling import Spelling

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG, SPECIAL_TOKENS = "generation_config.json", "special_tokens_map.json"
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    def __init__(self, spelling: Spelling, *, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._spelling, self._raw = spelling, spelling.raw
        self.vocab_size = vocab_size  # the model's: ids below it can be asked for
        self.eos_ids = eos_ids

    @classmethod
    def from_folder(cls, folder: Path, config: ModelConfig) -> "Tokenizer":
        """Raises BadModel, OSError."""
        path = folder / TOKENIZER
        if not path.is_file():
            raise BadModel(folder, TOKENIZER, "is missing: no other kind of tokenizer is served")
        try:
            raw = tokenizers.Tokenizer.from_file(str(path))
        except Exception as problem:  # the library has one class for everything that is wrong
            raise BadModel(path, "", f"is no tokenizer: {problem}") from problem
        raw.no_truncation()
        raw.no_padding()
        return cls(Spelling(raw, path), vocab_size=config.vocab_size, eos_ids=_eos_ids(folder, raw, config.vocab_size))

    def encode(self, text: str, add_special: bool = True, *, field: str = "prompt") -> list[int]:
        """`add_special`: what the tokenizer puts around a text. Raises BadRequest, which names `field`."""
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise BadRequest(field, f"half of a surrogate pair at character {problem.start} is no text") from problem
        # A batch of one: the library holds the interpreter's lock while it encodes a single text, and not for these.
        ids: list[int] = self._raw.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
        if ids and max(ids) >= self.vocab_size:
            raise BadRequest(field, f"token {max(ids)} is none of the model's {self.vocab_size:,}")
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return self._raw.decode(list(ids), skip_special_tokens=skip_special)

    def detokenizer(self, skip_special: bool = True) -> Detokenizer:
        return make_detokenizer(self._spelling, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for, which may be half of a character."""
        return self._spelling.bytes_of(token)

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode(errors="replace")


def special_tokens(folder: Path) -> dict[str, str]:
    """`bos_token` and the like, as templates know them. Raises BadModel, OSError."""
    found = {**_maybe_object(folder / SPECIAL_TOKENS), **_maybe_object(folder / TOKENIZER_CONFIG)}
    texts = {name: _content(found.get(name)) for name in SPECIAL_NAMES}
    return {name: text for name, text in texts.items() if text is not None}


def _content(token: object) -> str | None:
    """A token is spelt as it is, or as an object that has its spelling."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _eos_ids(folder: Path, raw: tokenizers.Tokenizer, vocab_size: int) -> frozenset[int]:
    """Everything that any file says an answer ends with."""
    found: set[int] = set()
    for path in (folder / CONFIG, folder / GENERATION_CONFIG):
        found |= _ids(path, _maybe_object(path).get("eos_token_id"), vocab_size)
    text = special_tokens(folder).get("eos_token")
    token = raw.token_to_id(text) if text is not None else None
    return frozenset(found if token is None or token >= vocab_size else found | {token})


def _ids(path: Path, given: object, vocab_size: int) -> set[int]:
    ids = given if isinstance(given, list) else [] if given is None else [given]
    if not all(type(token) is int and 0 <= token < vocab_size for token in ids):
        raise BadModel(path, "eos_token_id", f"{repr(given)[:60]} is no token below {vocab_size:,}, nor a list of such")
    return set(ids)


def _maybe_object(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}
