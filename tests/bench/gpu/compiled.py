"""Every kernel compiled ahead of time for Hopper, no GPU needed, in processes of their own.

`python -m tests.bench.gpu.compiled` writes a line of JSON for each. Apart, because Triton's interpreter, which the
tests run kernels with, is chosen when kernels are imported, and a kernel that is interpreted cannot be compiled.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from controlplane.settings.env import CHECKOUT
from kernels.aot import CompileCase, Compiled, compile_case, every_case
from kernels.formats import KV_FORMATS, kv_format_named

Chosen = Mapping[int, Sequence[str]]  # head size: formats

OFFERED = tuple(name for name, kv_format in KV_FORMATS.items() if kv_format.is_offered)
ALL: Chosen = {64: OFFERED, 128: OFFERED}
LAST_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one case: what came out, or why nothing did."""

    name: str
    compiled: Compiled | None
    error: str = ""


class NotCompiled(Exception):
    """The process that was to compile ended; with the last that it said."""


def compiled_apart(processes: int, chosen: Chosen = ALL) -> Iterator[Outcome]:
    """Each case as soon as it is compiled."""
    command = [sys.executable, "-m", "tests.bench.gpu.compiled", "--processes", str(processes)]
    command += [f"{head_size}:{','.join(formats)}" for head_size, formats in chosen.items()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    environment["OMP_NUM_THREADS"] = "1"
    with subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            yield outcome_of(line)
        said = process.stderr.read()
    if process.returncode != 0:
        raise NotCompiled(f"ended with status {process.returncode}: {said[-LAST_CHARACTERS:]}")


def outcome_of(line: str) -> Outcome:
    """The reverse of what `main` writes."""
    found = json.loads(line)
    kept = found["compiled"]
    compiled = Compiled(**{**kept, "matrix_instructions": tuple(kept["matrix_instructions"])}) if kept else None
    return Outcome(found["name"], compiled, found["error"])


def cases_of(chosen: Chosen) -> list[CompileCase]:
    """Each once: what no head size makes a difference to is not compiled for each of them."""
    found = [every_case([size], [kv_format_named(name) for name in names]) for size, names in chosen.items()]
    return list({case.name: case for cases in found for case in cases}.values())


def chosen_of(arguments: Sequence[str]) -> Chosen:
    split = [argument.split(":") for argument in arguments]
    return {int(head_size): formats.split(",") for head_size, formats in split}


def attempted(case: CompileCase) -> Outcome:
    try:
        return Outcome(case.name, compile_case(case))
    except Exception as problem:  # Triton's errors are of many kinds, and the others should still be compiled
        return Outcome(case.name, None, f"{type(problem).__name__}: {problem}"[-LAST_CHARACTERS:])


_cases: list[CompileCase] = []  # inherited by the processes: a kernel cannot be sent


def _attempted_at(index: int) -> Outcome:
    return attempted(_cases[index])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.compiled", description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("chosen", nargs="*", metavar="SIZE:FORMAT,FORMAT", help="default: 64 and 128, every format")
    options = parser.parse_args(argv)
    _cases[:] = cases_of(chosen_of(options.chosen) or ALL)
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for outcome in pool.imap_unordered(_attempted_at, range(len(_cases))):
            print(json.dumps(asdict(outcome)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
