"""`make lock`: resolve every extra together and pin the result in constraints.txt, without index or build."""

import re
import subprocess
import sys
from pathlib import Path

from controlplane.settings.env import CHECKOUT

EXTRAS = ("control", "embedded", "engine", "vllm", "dev", "bench")
QUIET = ("--strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
INSTALLERS = ("pip", "setuptools", "wheel")
# torch pins these itself, exactly and differently in each build: our pin would fit one of them only.
OF_TORCHS_BUILD = ("nvidia-", "cuda-", "nccl", "triton", "torch-c-")


def pins(compiled: str) -> list[str]:
    """Return the `name==version` lines valid everywhere: no comments, installers or packages of one torch build."""
    lines = (line.strip() for line in compiled.splitlines())
    requirements = (re.sub(r"\+.*$", "", line) for line in lines if re.match(r"[a-z0-9]", line))
    return [
        requirement
        for requirement in requirements
        if requirement.split("==")[0] not in INSTALLERS and not requirement.startswith(OF_TORCHS_BUILD)
    ]


def main() -> int:
    target = CHECKOUT / "constraints.txt"
    raw = Path(sys.prefix) / "luminet-lock.txt"
    raw.write_text(target.read_text(encoding="utf-8"), encoding="utf-8")  # pip-compile keeps the pins that still fit
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    command = [sys.executable, "-m", "piptools", "compile", *QUIET, "--no-emit-trusted-host", *extras]
    print("luminet: resolving every extra together; this takes a minute or two", flush=True)
    command += ["--output-file", str(raw), "pyproject.toml"]
    completed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if completed.returncode == 0:
        lines = pins(raw.read_text(encoding="utf-8"))
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"luminet: {len(lines)} packages pinned in {target.name}")
    else:
        print(f"luminet: nothing was changed; pip-compile said:\n{completed.stderr[-3000:]}", file=sys.stderr)
    raw.unlink()
    return completed.returncode


if __name__ == "__main__":
    sys.exit(main())
