"""Kernels compiled for a GPU that is not here: to PTX and to machine code, with the registers they take.

A kernel that the interpreter runs may still not compile, spill its registers, or choose an instruction it must not.
So each op's file has `compile_cases(head_size, kv_format)`, the forms in which the op is launched (only `head_size`,
where the format makes no difference), and the tests compile all of them. Nothing is taken from Triton's cache and
nothing is left in it.
"""

import importlib
import io
import pkgutil
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import kernels
from kernels.dispatch import HAS_TRITON, IS_INTERPRETED, triton
from kernels.errors import InvalidArgument, KernelError
from kernels.formats import KvFormat

HOPPER = 90
WARP_SIZE = 32
ALIGNED = [["tt.divisibility", 16]]  # what a launch finds out about tensors, and about whole numbers that are multiples
REGISTERS = re.compile(r"Used (\d+) registers")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
MATRIX_INSTRUCTION = re.compile(
    r"^\s*(?:@!?%\w+\s+)?((?:wgmma\.mma_async|wmma\.mma|mma|tcgen05\.mma)\S*)", re.MULTILINE
)
FP8_OPERAND = re.compile(r"e4m3|e5m2|f8f6f4")


@dataclass(frozen=True, slots=True)
class CompileCase:
    """One form of a kernel. `signature` gives Triton's type of each argument that is no constexpr, in any order:
    "*u8", "*fp32", "i32", "i64", "fp32". Pointers count as aligned to 16 bytes; so do the whole numbers in `aligned`,
    as a launch finds multiples of 16. An argument that is None when launched is a constexpr.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)  # num_warps, num_stages, enable_fp_fusion
    aligned: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came out. Registers and spilled bytes (stores and loads) are a thread's, shared memory is a program's."""

    name: str
    registers: int
    spills_bytes: int
    shared_bytes: int
    warps: int
    ptx_bytes: int
    cubin_bytes: int
    matrix_instructions: tuple[str, ...]  # the different ones in the PTX

    @property
    def fp8_operands(self) -> tuple[str, ...]:
        """Matrix instructions with an FP8 operand. Hopper adds their products up at reduced precision: use none."""
        return tuple(found for found in self.matrix_instructions if FP8_OPERAND.search(found))


def every_case(head_sizes: Iterable[int], kv_formats: Iterable[KvFormat]) -> list[CompileCase]:
    """Those of all ops, each once: what is the same for several formats or head sizes is not compiled again."""
    formats = [kv_format for kv_format in kv_formats if kv_format.is_native]
    cases: dict[str, CompileCase] = {}
    for list_cases in _lists_of_cases():
        takes_format = "kv_format" in signature(list_cases).parameters
        for head_size in head_sizes:
            for given in ((head_size, one) for one in formats) if takes_format else ((head_size,),):
                cases.update({_identity(case): case for case in list_cases(*given)})
    return list(cases.values())


def compile_case(case: CompileCase, capability: int = HOPPER) -> Compiled:
    """Compile it anew. Raises what Triton raises; KernelError where there is no Triton or its interpreter is on."""
    if not HAS_TRITON or IS_INTERPRETED:
        why = (
            "its interpreter is on: unset TRITON_INTERPRET" if HAS_TRITON else "it is not installed: pip install triton"
        )
        raise KernelError(f"{case.name}: Triton cannot compile here, {why}")
    said = io.StringIO()
    with _nothing_cached(), redirect_stdout(said):
        built = triton.compile(_source(case), target=_target(capability), options=dict(case.options))
    return Compiled(
        name=case.name,
        registers=_registers(case, said.getvalue()),
        spills_bytes=sum(int(stored) + int(loaded) for stored, loaded in SPILLS.findall(said.getvalue())),
        shared_bytes=built.metadata.shared,
        warps=built.metadata.num_warps,
        ptx_bytes=len(built.asm["ptx"]),
        cubin_bytes=len(built.asm["cubin"]),
        matrix_instructions=matrix_instructions(built.asm["ptx"]),
    )


def matrix_instructions(ptx: str) -> tuple[str, ...]:
    """The different ones, sorted; the types of their operands are in their names."""
    return tuple(sorted(set(MATRIX_INSTRUCTION.findall(ptx))))


def _lists_of_cases() -> list[Callable[..., Iterable[CompileCase]]]:
    modules = [
        importlib.import_module(f"kernels.{one.name}")
        for one in pkgutil.iter_modules(kernels.__path__)
        if not one.ispkg
    ]
    return [module.compile_cases for module in modules if hasattr(module, "compile_cases")]


def _identity(case: CompileCase) -> str:
    """Equal for cases that are compiled to the same; their names may differ."""
    parts = (case.signature, case.constexprs, case.options)
    return repr([case.kernel.__name__, sorted(case.aligned), *(sorted(part.items()) for part in parts)])


def _source(case: CompileCase) -> Any:
    names = case.kernel.arg_names
    given = {*case.signature, *case.constexprs}
    if given != set(names) or len(given) != len(case.signature) + len(case.constexprs):
        raise InvalidArgument("case", sorted(given.symmetric_difference(names)), f"each argument of {case.name} once")
    kinds = {name: case.signature.get(name, "constexpr") for name in names}
    is_aligned = [kind.startswith("*") or name in case.aligned for name, kind in kinds.items()]
    attributes = {(index,): ALIGNED for index, known in enumerate(is_aligned) if known}
    return triton.compiler.ASTSource(case.kernel, kinds, dict(case.constexprs), attributes)


def _target(capability: int) -> Any:
    return triton.backends.compiler.GPUTarget("cuda", capability, WARP_SIZE)


def _registers(case: CompileCase, log: str) -> int:
    found = REGISTERS.findall(log)
    if len(found) != 1:
        raise KernelError(f"{case.name}: the assembler told the registers of {len(found)} kernels, not of one: {log!r}")
    return int(found[0])


@contextmanager
def _nothing_cached() -> Iterator[None]:
    """In a cache of its own, thrown away afterwards; and the assembler says what it did."""
    knobs = triton.knobs
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope(), knobs.compilation.scope(), knobs.nvidia.scope():
        knobs.cache.dir = folder
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        yield
