"""How a tokenizer's tokens are spelt: which bytes one stands for, and which tokens are half of a character.

Two kinds of vocabulary cover the families here. *Byte-level* ones (GPT-2, Llama 3, Qwen) write each byte as a letter
of its own, so text is their bytes one behind the other. The others (SentencePiece: Llama 2, Mistral) write words with
`▁` for a space, and what they have no word for as `<0xE2>`, byte by byte.
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
        """Tokens that stand for one byte each, where a decoder puts such bytes together."""
        if "ByteFallback" not in self._steps:
            return frozenset()
        found = (self.raw.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token for token in found if token is not None)

    def bytes_of(self, token: int) -> bytes:
        """Nothing for an id that is no token: models have more rows than their tokenizers have tokens."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._spelt(self.raw.id_to_token(token) or "")
        return known

    def _spelt(self, word: str) -> bytes:
        if self.is_byte_level:
            letters = [_BYTES.get(letter) for letter in word]
            return word.encode() if None in letters else bytes(byte for byte in letters if byte is not None)
        if "ByteFallback" in self._steps and (byte := _BYTE.fullmatch(word)):
            return bytes.fromhex(byte[1])
        return word.replace(SPACE, " ").encode()


def _decoder_steps(raw: tokenizers.Tokenizer) -> list[str]:
    """The decoder's kinds, one behind the other; of no decoder none."""
    decoder: dict[str, Any] = json.loads(raw.to_str()).get("decoder") or {} if raw.decoder is not None else {}
    return [step["type"] for step in decoder.get("decoders", [decoder] if decoder else [])]


def _byte_letters() -> dict[str, int]:
    """GPT-2's: bytes that print are themselves, the others are letters from 256 on, in order."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printed)
    return {chr(byte): byte for byte in printed} | {chr(256 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_letters()
