"""`make lock`: resolves every extra together and pins the result in constraints.txt, naming no index and no build."""

import re
import subprocess
import sys
from pathlib import Path

from controlplane.settings.env import CHECKOUT

EXTRAS = ("control", "embedded", "engine", "vllm", "dev", "bench")
QUIET = ("--strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
INSTALLERS = ("pip", "setuptools", "wheel")
# torch pins these itself, exactly, and differently for each of its builds: a pin of ours would fit one of them only.
OF_TORCHS_BUILD = ("nvidia-", "cuda-", "nccl", "triton", "torch-c-")


def pins(compiled: str) -> list[str]:
    """Only `name==version` lines that hold everywhere: no comments, no installers, nothing of one build of torch."""
    lines = (line.strip() for line in compiled.splitlines())
    found = (re.sub(r"\+.*$", "", line) for line in lines if re.match(r"[a-z0-9]", line))
    return [line for line in found if line.split("==")[0] not in INSTALLERS and not line.startswith(OF_TORCHS_BUILD)]


def main() -> int:
    target = CHECKOUT / "constraints.txt"
    raw = Path(sys.prefix) / "luminet-lock.txt"
    raw.write_text(target.read_text(encoding="utf-8"), encoding="utf-8")  # pip-compile keeps what still fits
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    command = [sys.executable, "-m", "piptools", "compile", *QUIET, "--no-emit-trusted-host", *extras]
    print("luminet: resolving every extra together; this takes a minute or two", flush=True)
    command += ["--output-file", str(raw), "pyproject.toml"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        lines = pins(raw.read_text(encoding="utf-8"))
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"luminet: {len(lines)} packages pinned in {target.name}")
    else:
        print(f"luminet: nothing was changed; pip-compile said:\n{done.stderr[-3000:]}", file=sys.stderr)
    raw.unlink()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
