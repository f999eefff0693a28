"""How keys and values lie in memory: bytes of a vector, a page and a token, and where each part of a page begins.

A *vector* is the key or the value of one token in one head. A *page* holds one block of tokens for all layers:

    page   = layer 0 | layer 1 | …
    layer  = key codes | key scales | value codes | value scales
    codes  = [kv_heads, block_tokens, code bytes of a vector]
    scales = [kv_heads, block_tokens, scale bytes of a vector]

Scales travel with their codes: what copies, moves or zeroes a page cannot part them. Every section is a multiple of
16 bytes, so nothing is padded and a page has exactly the bytes of its vectors. Standard library only: the control
plane imports this.
"""

from dataclasses import dataclass
from functools import cached_property

from kernels.errors import InvalidArgument
from kernels.formats import KvFormat

BLOCK_TOKENS = 16
MOST_HEAD_SIZE = 256  # of a page: what a tile of a kernel holds
ALIGNMENT = 16  # bytes: one vector load of a GPU thread


@dataclass(frozen=True)
class PageLayout:
    """One model's page in one format. Equal layouts are equal: `(format, layers, kv_heads, head_size, block)`."""

    kv_format: KvFormat
    layers: int
    kv_heads: int
    head_size: int
    block_tokens: int = BLOCK_TOKENS

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_size", "block_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidArgument(name, value, "a whole number above 0")
        if self.head_size % 16 or self.head_size > MOST_HEAD_SIZE:
            raise InvalidArgument("head_size", self.head_size, f"a multiple of 16 up to {MOST_HEAD_SIZE}")
        if self.block_tokens < 16 or self.block_tokens & (self.block_tokens - 1):
            raise InvalidArgument("block_tokens", self.block_tokens, "a power of two from 16 on")

    @cached_property
    def key_code_bytes(self) -> int:
        """Of one vector."""
        return self.kv_format.key.code_bytes(self.head_size)

    @cached_property
    def key_scale_bytes(self) -> int:
        """Of one vector."""
        return self.kv_format.key.scale_bytes(self.head_size)

    @cached_property
    def value_code_bytes(self) -> int:
        """Of one vector."""
        return self.kv_format.value.code_bytes(self.head_size)

    @cached_property
    def value_scale_bytes(self) -> int:
        """Of one vector."""
        return self.kv_format.value.scale_bytes(self.head_size)

    @cached_property
    def vectors(self) -> int:
        """Keys of one layer in one page; as many values."""
        return self.kv_heads * self.block_tokens

    @cached_property
    def key_scales_at(self) -> int:
        """Where they begin, in bytes from the layer's begin; its key codes begin at 0."""
        return self.vectors * self.key_code_bytes

    @cached_property
    def value_codes_at(self) -> int:
        return self.key_scales_at + self.vectors * self.key_scale_bytes

    @cached_property
    def value_scales_at(self) -> int:
        return self.value_codes_at + self.vectors * self.value_code_bytes

    @cached_property
    def layer_bytes(self) -> int:
        return self.value_scales_at + self.vectors * self.value_scale_bytes

    @cached_property
    def page_bytes(self) -> int:
        return self.layers * self.layer_bytes

    @cached_property
    def token_bytes(self) -> int:
        """Of one token over all layers: exact, for nothing in a page is padded."""
        return self.page_bytes // self.block_tokens
