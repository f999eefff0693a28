"""LiteLLM's proxy for row G1 to measure beside, in a virtualenv of its own: `.venv-litellm`, made on first use.

constraints-litellm.txt pins all that goes in; `python -m tests.bench.litellm_env` (`make locklitellm`) writes it anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.stack.bootstrap import CHECKOUT, Group
from controlplane.stack.environments import Environment, Step, pins_write

VERSION = "1.108.7"
WANTED = f"litellm[proxy]=={VERSION}"
PINS = CHECKOUT / "constraints-litellm.txt"
SIZE = Group("LiteLLM's proxy, to measure beside", (), 116, 190, 780)
PROOF = "import litellm.proxy.proxy_server"
HEADER = f"""\
# All of .venv-litellm, which holds LiteLLM {VERSION} for row G1, measured beside it; written by `make locklitellm`.
# Constraints for `pip install litellm[proxy]`; docs/decisions/0002-dependencies.md says why.
"""


@dataclass(slots=True)
class LitellmEnvironment(Environment):
    folder: Path = CHECKOUT / ".venv-litellm"
    pins: Path = PINS
    name: str = f"LiteLLM {VERSION}"
    proof: str = PROOF

    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        return [([*install, "--constraint", str(self.pins), WANTED], SIZE.packages)]

    def _size(self) -> Group:
        return SIZE


LITELLM = LitellmEnvironment()


def main() -> int:
    """Write constraints-litellm.txt anew; downloads little but metadata."""
    return pins_write([WANTED], PINS, HEADER)


if __name__ == "__main__":
    raise SystemExit(main())
