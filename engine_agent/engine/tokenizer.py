"""A model's own tokenizer: text to tokens, tokens to text, and which tokens end an answer."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from engine_agent.engine.config import CONFIG, ModelConfig
from engine_agent.engine.detokenizer import Detokenizer, make_detokenizer
from engine_agent.engine.errors import BadModel
from engine_agent.engine.spelling import Spelling
from engine_agent.prompts.encoding import encode_text, tokenizer_read
from engine_agent.prompts.files import TOKENIZER, maybe_object, read_text, special_tokens

GENERATION_CONFIG = "generation_config.json"


class Tokenizer:
    def __init__(self, spelling: Spelling, *, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._spelling, self._raw = spelling, spelling.raw
        self.vocab_size = vocab_size  # the model's: requests may use any id below it
        self.eos_ids = eos_ids

    @classmethod
    def from_folder(cls, folder: Path, config: ModelConfig) -> "Tokenizer":
        """Return the tokenizer of a model's folder. Raises BadModel, OSError."""
        path = folder / TOKENIZER
        if not path.is_file():
            raise BadModel(folder, TOKENIZER, "is missing: no other kind of tokenizer is served")
        raw = tokenizer_read(read_text(path), path)
        return cls(Spelling(raw, path), vocab_size=config.vocab_size, eos_ids=_eos_ids(folder, raw, config.vocab_size))

    def encode(self, text: str, add_special: bool = True, *, field: str = "prompt") -> list[int]:
        """Return the tokens of a text. Raises BadRequest, which names `field`.

        `add_special`: with the tokens that the tokenizer puts around a text.
        """
        return encode_text(self._raw, text, add_special=add_special, vocab_size=self.vocab_size, field=field)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return self._raw.decode(list(ids), skip_special_tokens=skip_special)

    def detokenizer(self, skip_special: bool = True) -> Detokenizer:
        return make_detokenizer(self._spelling, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token, which may be part of a character."""
        return self._spelling.bytes_of(token)

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode(errors="replace")


def _eos_ids(folder: Path, raw: tokenizers.Tokenizer, vocab_size: int) -> frozenset[int]:
    """Return all end tokens that any of the files names."""
    eos_ids: set[int] = set()
    for path in (folder / CONFIG, folder / GENERATION_CONFIG):
        eos_ids |= _ids(path, maybe_object(path).get("eos_token_id"), vocab_size)
    text = special_tokens(folder).get("eos_token")
    token = raw.token_to_id(text) if text is not None else None
    return frozenset(eos_ids if token is None or token >= vocab_size else eos_ids | {token})


def _ids(path: Path, configured: object, vocab_size: int) -> set[int]:
    ids = configured if isinstance(configured, list) else [] if configured is None else [configured]
    if not all(type(token) is int and 0 <= token < vocab_size for token in ids):
        raise BadModel(
            path, "eos_token_id", f"{repr(configured)[:60]} is no token below {vocab_size:,}, nor a list of such"
        )
    return set(ids)
