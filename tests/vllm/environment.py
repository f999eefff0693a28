"""`make test-vllm`: vLLM's own virtualenv with what tests need besides, and the tests in it and beside it.

Without a vLLM for this machine it says so loudly, and ends with a status of its own: what was not run is not green.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.stack.bootstrap import CHECKOUT, run_quietly
from controlplane.stack.environments import INSTALL, PIP, Unavailable, in_one_line
from controlplane.stack.vllm_env import VLLM

PINS = CHECKOUT / "constraints.txt"
FOR_TESTS = ("pytest", "pluggy", "iniconfig", "hypothesis", "sortedcontainers")
INSIDE = ("-c", "tests/vllm/inside/pytest.ini", "--rootdir", ".", "tests/vllm/inside")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
}
ASKED_FOR = "LUMINET_TEST_VLLM"  # set to 1: the tests of both backends run with real vLLM as well
PASSED, FAILED, NOT_RUN = 0, 1, 3  # 2 is make's own


def main(arguments: Sequence[str]) -> int:
    try:
        python = ready_python()
    except Unavailable as why:
        print(banner(f"NO TEST OF vLLM WAS RUN: {why}"), file=sys.stderr)
        return NOT_RUN
    environ = os.environ | OFFLINE | {ASKED_FOR: "1"}
    inside = [str(python), "-m", "pytest", *INSIDE, *arguments]
    beside = [sys.executable, "-m", "pytest", "tests/conformance", "tests/vllm/beside", *arguments]
    return status_of([inside, beside], environ)


def status_of(commands: Sequence[Sequence[str]], environ: Mapping[str, str]) -> int:
    """One after the other, each of them. FAILED where one failed, also by a signal, whose number is below 0."""
    codes = [subprocess.run(command, cwd=CHECKOUT, env=environ).returncode for command in commands]
    return FAILED if any(codes) else PASSED


def banner(*lines: str) -> str:
    """What nobody is to miss at the end of a long output."""
    return "\n".join(("", "!" * 80, *lines, "!" * 80, ""))


def ready_python() -> Path:
    """vLLM's Python, which has what tests need. Raises Unavailable."""
    python = VLLM.ready_python()
    wanted = [line for line in PINS.read_text(encoding="utf-8").splitlines() if _name(line) in FOR_TESTS]
    if run_quietly([str(python), "-c", "import hypothesis, pytest"]).returncode != 0:
        made = run_quietly([*PIP, "--python", str(python), *INSTALL, "--no-deps", *wanted])
        if made.returncode != 0:
            raise Unavailable(f"what tests need is not to be had: {in_one_line(made.stderr)}")
    return python


def _name(line: str) -> str:
    return re.split(r"[=;\s\[]", line.strip(), maxsplit=1)[0]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
