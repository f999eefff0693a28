"""The registry of KV formats: the only place where their names are listed. Standard library only: all sides import it.

To add one, write a codec in `kernels/codecs/` (read `int8.py`) and add an entry to `KV_FORMATS`. Policies, bounds, the
engine, quality gates, the dashboard and the calculator derive from the entry; docs/kernels.md has an example. Where a
format's bytes lie in a page is the business of `layout.py`.
"""

from dataclasses import dataclass, field

from kernels.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How one vector is stored."""

    name: str
    bits: int  # of one element's code
    header_bytes: int = 0  # of the scale each vector has
    group: int = 0  # elements that share one scale byte; 0: none do
    is_raw: bool = False  # the number itself: calibration leaves it alone
    is_rotated: bool = False  # by a randomised Hadamard transform, before it is encoded
    static_top: float = 0.0  # largest number that fits once divided by a static scale; 0: the format has none
    codec: str = field(default="", compare=False)  # its module in `kernels/codecs/`
    native: int | None = field(default=None, compare=False)  # its number in C; None: torch computes it, on a GPU too

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


FP32 = VectorFormat("fp32", bits=32, is_raw=True, codec="plain", native=0)
BF16 = VectorFormat("bf16", bits=16, is_raw=True, codec="plain", native=1)
E4M3 = VectorFormat("e4m3", bits=8, static_top=448.0, codec="fp8", native=2)
E5M2 = VectorFormat("e5m2", bits=8, static_top=57_344.0, codec="fp8", native=3)
INT8 = VectorFormat("int8", bits=8, header_bytes=4, codec="int8", native=4)
INT4 = VectorFormat("int4", bits=4, header_bytes=4, is_rotated=True, codec="packed", native=5)
NVFP4 = VectorFormat("nvfp4", bits=4, group=16, static_top=6 * 448.0, codec="nvfp4", native=6)
INT2 = VectorFormat("int2", bits=2, header_bytes=4, codec="packed", native=7)


@dataclass(frozen=True, slots=True)
class Gate:
    """The most a format may lose against its reference. `needle_share` is of what bf16 finds."""

    delta_percent: float
    mean_divergence: float
    needle_share: float
    reason: str


@dataclass(frozen=True, slots=True)
class KvFormat:
    """How keys are stored, and how values. What it is called, here alone, and what is known of it."""

    name: str
    key: VectorFormat
    value: VectorFormat
    is_offered: bool = False  # in policies; the others are there to measure with
    hint: str = field(default="", compare=False)  # for people who choose one
    gate: Gate | None = field(default=None, compare=False)  # None: the quality suite takes the loosest there is

    @property
    def is_native(self) -> bool:
        """Kernels in C and Triton compute it."""
        return self.key.native is not None and self.value.native is not None

    def token_bytes(self, head_size: int) -> int:
        """Of one token's key and value in one head."""
        return self.key.vector_bytes(head_size) + self.value.vector_bytes(head_size)


KV_FORMATS: dict[str, KvFormat] = {
    kv_format.name: kv_format
    for kv_format in (
        KvFormat(
            "fp32",  # the reference that makes exact parity testable
            FP32,
            FP32,
            gate=Gate(0.001, 1e-6, 1.0, "the same numbers as attention without pages, but for the order of sums"),
        ),
        KvFormat(
            "bf16",
            BF16,
            BF16,
            is_offered=True,
            hint="16 bits, what the others are compared with",
            gate=Gate(0.02, 1e-5, 1.0, "the noise floor: what every served model rounds anyway; measured against fp32"),
        ),
        KvFormat(
            "fp8",
            E4M3,
            E5M2,
            is_offered=True,
            hint="keys E4M3, values E5M2",
            gate=Gate(0.2, 2e-3, 0.995, "values with two bits of mantissa: at most twice the divergence of fp8_e4m3"),
        ),
        KvFormat(
            "fp8_e4m3",
            E4M3,
            E4M3,
            is_offered=True,
            hint="keys and values E4M3",
            gate=Gate(0.1, 1e-3, 0.995, "three bits of mantissa; the default on GPUs, so it must be safe blindly"),
        ),
        KvFormat(
            "fp8_e5m2",
            E5M2,
            E5M2,
            is_offered=True,
            hint="keys and values E5M2",
            gate=Gate(0.5, 5e-3, 0.98, "keys with two bits of mantissa, too, and keys are what matters"),
        ),
        KvFormat(
            "int8",
            INT8,
            INT8,
            is_offered=True,
            hint="8 bits with scales",
            gate=Gate(0.05, 1e-4, 0.999, "seven bits and a scale for each vector: nobody should be able to tell"),
        ),
        KvFormat(
            "k8v4",
            INT8,
            INT4,
            is_offered=True,
            hint="keys INT8, values INT4",
            gate=Gate(0.3, 3e-3, 0.99, "int8's keys; values at four bits cost little"),
        ),
        KvFormat(
            "int4",
            INT4,
            INT4,
            is_offered=True,
            hint="4 bits with scales",
            gate=Gate(1.0, 1e-2, 0.95, "four bits for 3.7 times the tokens: offered to those who ask for it"),
        ),
        KvFormat(
            "nvfp4",
            NVFP4,
            NVFP4,
            is_offered=True,
            hint="4 bits, FP4 with scales",
            gate=Gate(1.5, 1.5e-2, 0.95, "four bits that hardware will read; no rotation, so a little worse than int4"),
        ),
        KvFormat("int2", INT2, INT2),  # the control that every quality test must reject
    )
}
OFFERED: tuple[str, ...] = tuple(name for name, kv_format in KV_FORMATS.items() if kv_format.is_offered)
BASELINE, EXACT, CONTROL = "bf16", "fp32", "int2"  # of quality: compared with, computed with, and to be rejected
FLOOR = (EXACT, BASELINE)  # whether pages are exact at all, and what a served model rounds anyway


def kv_format_named(name: str) -> KvFormat:
    """Raises InvalidArgument for a name no format has."""
    try:
        return KV_FORMATS[name]
    except (KeyError, TypeError):
        raise InvalidArgument("kv_format", name, f"one of {', '.join(KV_FORMATS)}") from None


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
