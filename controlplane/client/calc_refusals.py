"""Errors of the calculator, worded with the command's options, and a check for options that have no effect."""

import re
from collections.abc import Mapping
from typing import Any

from controlplane.client.errors import ClientError
from kernels.errors import InvalidArgument

OPTIONS = {
    "active_parameters": "--active-parameters",
    "bandwidth_bytes_per_second": "--bandwidth",
    "context_tokens": "--context",
    "kv_dtypes": "--kv-dtype",
    "memory_bytes": "--memory",
    "memory_utilisation": "--memory-utilisation",
    "reserve_bytes": "--reserve",
    "shared_prefix_tokens": "--shared-prefix",
    "tensor_parallel": "--tensor-parallel",
    "weights_bytes": "--weights",
    "weights_dtype": "--weights-dtype",
}
WORDS = {name: f"--{name}" for name in ("accelerator", "concurrency", "model", "parameters")}  # also ordinary words
OF_A_MACHINE = ("weights_bytes", "weights_dtype", "reserve_bytes", "memory_utilisation")
_NAME = re.compile(rf"\b({'|'.join(sorted(OPTIONS, key=len, reverse=True))})\b")


def in_options(error: InvalidArgument) -> str:
    """Return the error's text with options instead of arguments. Fields of a config keep their names."""
    field = error.argument.split(".")[0]
    if field not in OPTIONS | WORDS:
        return str(error)
    option = (OPTIONS | WORDS)[field]
    expected = _NAME.sub(lambda match: OPTIONS[match[1]], error.wanted)
    if expected.startswith("there"):  # no value was given, and people do not type `null`
        return f"{option} is not {expected}"
    return f"{option}: {error.value!r} is not {expected}"


def machine_check(options: Mapping[str, Any]) -> None:
    """Raise ClientError if an option about a machine's memory is given without a machine."""
    if any(options[name] is not None for name in ("accelerator", "memory_bytes", "bandwidth_bytes_per_second")):
        return
    for name in OF_A_MACHINE:
        if options[name] is not None:
            raise ClientError(f"{OPTIONS[name]} needs an accelerator: add --accelerator, or --memory and --bandwidth")
