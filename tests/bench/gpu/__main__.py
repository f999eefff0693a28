"""`make bench-gpu`: check every Triton kernel on the GPU that is here, then time the engine and the kernels.

Exit 0: done; 1: something did not build, or is not what its reference is; 2: there is no GPU, or nothing to do. A
figure short of its target never changes the exit code. `--dry-run` goes through all of it without a GPU, at tiny sizes,
under Triton's interpreter: what it prints is no measurement, and nothing is kept.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

NO_GPU = """\
luminet: there is no NVIDIA GPU here that torch can use ({why}), so nothing was measured.
  On a machine with one: make bench-gpu. To go through all of it without: python -m tests.bench.gpu --dry-run"""
ROWS = "tests.bench.gpu.rows"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False)  # the rows' own options are the bench's
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    options, others = parser.parse_known_args(argv)
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before kernels are imported, which choose by it
        return _dry_run(others)
    if why := gpu_problem():
        print(NO_GPU.format(why=why), file=sys.stderr)
        return 2
    return _measured(others, options.out, is_resumed=options.resume)


def gpu_problem() -> str | None:
    """Why there is none, in a few words; None where there is one."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    return None if torch.cuda.is_available() else "torch sees none: is there a card, and a driver for it?"


def _dry_run(arguments: Sequence[str]) -> int:
    from kernels.dispatch import using
    from tests.bench.gpu.setting import choose, dry_setting

    choose(dry_setting())
    with tempfile.TemporaryDirectory() as folder, using("triton"):
        return _bench([*arguments, "--out", folder])


def _measured(arguments: Sequence[str], out: Path | None, *, is_resumed: bool) -> int:
    from tests.bench.__main__ import default_out
    from tests.bench.gpu.setting import choose, gpu_setting

    out = out or default_out()
    choose(gpu_setting(out, is_resumed=is_resumed))
    return _bench([*arguments, "--out", str(out), *(["--resume"] if is_resumed else [])])


def _bench(arguments: list[str]) -> int:
    from tests.bench.__main__ import main as bench
    from tests.bench.gpu.registry import GPU
    from tests.bench.gpu.setting import where

    print(f"luminet: {where()}", file=sys.stderr)
    return bench(arguments, package=ROWS, registry=GPU)


if __name__ == "__main__":
    raise SystemExit(main())
