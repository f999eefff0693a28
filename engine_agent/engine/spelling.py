"""The spelling of a tokenizer's tokens: which bytes each stands for, and which tokens are part of a character.

Two kinds of vocabulary cover the families here. *Byte-level* ones (GPT-2, Llama 3, Qwen) map each byte to a letter, so
text is the concatenation of their bytes. The others (SentencePiece: Llama 2, Mistral) write words with `▁` for a space,
and spell characters without a word byte by byte, as `<0xE2>`.
"""

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from engine_agent.engine.errors import BadModel

SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling:
    def __init__(self, raw: tokenizers.Tokenizer, path: Path) -> None:
        self.raw = raw
        self._steps = _decoder_steps(raw)
        if "ByteLevel" in self._steps and len(self._steps) > 1:
            raise BadModel(path, "decoder", f"a sequence of {', '.join(self._steps)} is not served")
        self.special = frozenset(token for token, added in raw.get_added_tokens_decoder().items() if added.special)
        self._known: dict[int, bytes] = {}

    @cached_property
    def is_byte_level(self) -> bool:
        return self._steps == ["ByteLevel"]

    @cached_property
    def half_characters(self) -> frozenset[int]:
        """Return the tokens for single bytes, if the decoder combines such bytes."""
        if "ByteFallback" not in self._steps:
            return frozenset()
        tokens = (self.raw.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token for token in tokens if token is not None)

    def bytes_of(self, token: int) -> bytes:
        """Return the token's bytes, or nothing for an unknown id: models have more rows than tokenizers have tokens."""
        token_bytes = self._known.get(token)
        if token_bytes is None:
            token_bytes = self._known[token] = self._spelt(self.raw.id_to_token(token) or "")
        return token_bytes

    def _spelt(self, word: str) -> bytes:
        if self.is_byte_level:
            letters = [_BYTES.get(letter) for letter in word]
            return word.encode() if None in letters else bytes(byte for byte in letters if byte is not None)
        if "ByteFallback" in self._steps and (byte := _BYTE.fullmatch(word)):
            return bytes.fromhex(byte[1])
        return word.replace(SPACE, " ").encode()


def _decoder_steps(raw: tokenizers.Tokenizer) -> list[str]:
    """Return the types of the decoder's steps in order, or nothing without a decoder."""
    decoder: dict[str, Any] = json.loads(raw.to_str()).get("decoder") or {} if raw.decoder is not None else {}
    return [step["type"] for step in decoder.get("decoders", [decoder] if decoder else [])]


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's map: printable bytes map to themselves, the others to letters from 256 on, in order."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unprinted = (byte for byte in range(256) if byte not in printed)
    return {chr(byte): byte for byte in printed} | {chr(256 + number): byte for number, byte in enumerate(unprinted)}


_BYTES = _byte_letters()
