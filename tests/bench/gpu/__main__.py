"""`make bench-gpu`: build, check and time every Triton kernel on the GPU that is here, in under 8 minutes.

Exit 0: done; 1: something did not build, or is not what its reference is; 2: there is no GPU, or nothing to do. A
figure short of its target never changes the exit code. `--dry-run` goes through all of it without a GPU, at tiny sizes,
under Triton's interpreter: what it prints is no measurement, and nothing is kept.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext

NO_GPU = """\
luminet: there is no NVIDIA GPU here that torch can use ({why}), so nothing was measured.
  On a machine with one: make bench-gpu. To go through all of it without: python -m tests.bench.gpu --dry-run"""
ROWS = "tests.bench.gpu.rows"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_dry = "--dry-run" in arguments
    if is_dry:
        arguments.remove("--dry-run")
        os.environ["TRITON_INTERPRET"] = "1"  # before kernels are imported, which choose by it
    elif why := gpu_problem():
        print(NO_GPU.format(why=why), file=sys.stderr)
        return 2
    return _measured(arguments, is_dry=is_dry)


def gpu_problem() -> str | None:
    """Why there is none, in a few words; None where there is one."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    return None if torch.cuda.is_available() else "torch sees none: is there a card, and a driver for it?"


def _measured(arguments: list[str], *, is_dry: bool) -> int:
    from kernels.dispatch import using
    from tests.bench.__main__ import main as bench
    from tests.bench.gpu.registry import GPU
    from tests.bench.gpu.setting import choose, dry_setting, gpu_setting, where

    choose(dry_setting() if is_dry else gpu_setting())
    print(f"luminet: {where()}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, using("triton") if is_dry else nullcontext():
        return bench([*arguments, *(["--out", folder] if is_dry else [])], package=ROWS, registry=GPU)


if __name__ == "__main__":
    raise SystemExit(main())
