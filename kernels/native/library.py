"""The libraries of this process: built and loaded when the first op asks, or not there, for a reason one can read."""

import ctypes
import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels.native.building import NotBuilt, built, compiler_version, find_compiler

ENVIRONMENT = "LUMINET_NATIVE"  # "0": torch computes, as if there was no compiler

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Native:
    """Functions in C. Each takes one packed call, whose pointers stay valid while it runs, and lets go of the GIL."""

    attend: Any
    kv_write: Any
    turn: Any
    compiler: str


@cache
def native() -> Native | str:
    """What there is, or why there is nothing. Built by the first who asks, which takes seconds once for a machine."""
    if os.environ.get(ENVIRONMENT) == "0":
        return f"switched off by {ENVIRONMENT}=0"
    try:
        # A sum that takes a product in unrounded is faster, and nobody compares attention's bits. Pages' are compared.
        attention = ctypes.CDLL(str(built("attention.c", "-ffp-contract=fast")))
        writing = ctypes.CDLL(str(built("writing.c", "-ffp-contract=off")))
        found = Native(
            attend=_function(attention.attend),
            kv_write=_function(writing.kv_write, ctypes.c_int64),
            turn=_function(writing.turn, ctypes.c_int64),
            compiler=compiler_version(find_compiler()),
        )
    except (NotBuilt, OSError, AttributeError) as error:
        logger.warning("kernels run in torch, several times slower than in C: %s", error)
        return str(error)
    return found


def is_ready() -> bool:
    """Whether ops in C can be had."""
    return isinstance(native(), Native)


def status() -> str:
    """For people: what computes on a CPU here, and if it is torch, why."""
    found = native()
    return f"C, by {found.compiler}" if isinstance(found, Native) else f"torch: {found}"


def _function(symbol: Any, answer: Any = None) -> Any:
    symbol.argtypes, symbol.restype = [ctypes.c_char_p], answer
    return symbol
