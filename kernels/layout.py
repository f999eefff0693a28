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

BLOCK_TOKENS = 16
MOST_HEAD_SIZE = 256  # of a page: what a tile of a kernel holds
ALIGNMENT = 16  # bytes: one vector load of a GPU thread


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How one vector is stored. A new one is a row here and a codec in `kernels/codecs/`."""

    name: str
    bits: int  # of one element's code
    header_bytes: int = 0  # of the scale each vector has
    group: int = 0  # elements that share one scale byte; 0: none do
    is_raw: bool = False  # the number itself: calibration leaves it alone
    is_rotated: bool = False  # by a randomised Hadamard transform, before it is encoded
    static_top: float = 0.0  # largest number that fits once divided by a static scale; 0: the format has none

    @property
    def has_static_scale(self) -> bool:
        """One for each layer and head, from calibration, kept in the scale set."""
        return self.static_top > 0

    def code_bytes(self, head_size: int) -> int:
        return head_size * self.bits // 8

    def scale_bytes(self, head_size: int) -> int:
        return self.header_bytes + (head_size // self.group if self.group else 0)

    def vector_bytes(self, head_size: int) -> int:
        return self.code_bytes(head_size) + self.scale_bytes(head_size)


FP32 = VectorFormat("fp32", bits=32, is_raw=True)
BF16 = VectorFormat("bf16", bits=16, is_raw=True)
E4M3 = VectorFormat("e4m3", bits=8, static_top=448.0)
E5M2 = VectorFormat("e5m2", bits=8, static_top=57_344.0)
INT8 = VectorFormat("int8", bits=8, header_bytes=4)
INT4 = VectorFormat("int4", bits=4, header_bytes=4, is_rotated=True)
NVFP4 = VectorFormat("nvfp4", bits=4, group=16, static_top=6 * 448.0)
INT2 = VectorFormat("int2", bits=2, header_bytes=4)


@dataclass(frozen=True, slots=True)
class KvFormat:
    """What a policy names: how keys are stored, and how values."""

    name: str
    key: VectorFormat
    value: VectorFormat
    is_offered: bool = False  # in policies (`KvDtype` in tenants/policy.py); the others are there to measure with

    def token_bytes(self, head_size: int) -> int:
        """Of one token's key and value in one head."""
        return self.key.vector_bytes(head_size) + self.value.vector_bytes(head_size)


KV_FORMATS: dict[str, KvFormat] = {
    kv_format.name: kv_format
    for kv_format in (
        KvFormat("fp32", FP32, FP32),  # the reference that makes exact parity testable
        KvFormat("bf16", BF16, BF16, is_offered=True),
        KvFormat("fp8", E4M3, E5M2, is_offered=True),
        KvFormat("fp8_e4m3", E4M3, E4M3, is_offered=True),
        KvFormat("fp8_e5m2", E5M2, E5M2, is_offered=True),
        KvFormat("int8", INT8, INT8, is_offered=True),
        KvFormat("k8v4", INT8, INT4, is_offered=True),
        KvFormat("int4", INT4, INT4, is_offered=True),
        KvFormat("nvfp4", NVFP4, NVFP4, is_offered=True),
        KvFormat("int2", INT2, INT2),  # the control that every quality test must reject
    )
}


def kv_format_named(name: str) -> KvFormat:
    """Raises InvalidArgument for a name no format has."""
    try:
        return KV_FORMATS[name]
    except (KeyError, TypeError):
        raise InvalidArgument("kv_format", name, f"one of {', '.join(KV_FORMATS)}") from None


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


@dataclass(frozen=True, slots=True)
class GroupedFormat(VectorFormat):
    """As others store vectors: a group's scale, and zero point where it has one, take `group_bytes`."""

    group_bytes: int = 1

    def scale_bytes(self, head_size: int) -> int:
        return self.header_bytes + head_size // self.group * self.group_bytes


@dataclass(frozen=True, slots=True)
class ComparedFormat(KvFormat):
    """A format of others, for tables of bytes: no codec of ours writes it."""

    is_offered: bool = False
    residual_tokens: int = 0  # the newest ones of each request, which stay in BF16


_E4M3_HEADER = VectorFormat("e4m3_header", bits=8, header_bytes=4)
_INT4_G32 = GroupedFormat("int4_g32", bits=4, group=32, group_bytes=4)  # fp16 scale, fp16 zero
_NVFP4_ROW = VectorFormat("nvfp4_row", bits=4, header_bytes=4, group=16)
_MXFP4 = VectorFormat("mxfp4", bits=4, group=32)
_KIVI2 = GroupedFormat("kivi2", bits=2, group=32, group_bytes=4)

COMPARED: dict[str, ComparedFormat] = {
    compared.name: compared
    for compared in (
        ComparedFormat("fp8_token_head", _E4M3_HEADER, _E4M3_HEADER),
        ComparedFormat("int4_g32", _INT4_G32, _INT4_G32),
        ComparedFormat("nvfp4_row", _NVFP4_ROW, _NVFP4_ROW),
        ComparedFormat("mxfp4", _MXFP4, _MXFP4),
        ComparedFormat("kivi2", _KIVI2, _KIVI2, residual_tokens=128),
    )
}
