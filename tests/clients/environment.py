"""Generators of API clients: Python's in `.venv-clients`, TypeScript's in `.node-clients`, installed on first use.

constraints-clients.txt (`make lockclients`) and package-lock.json pin all that goes in.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.stack.bootstrap import CHECKOUT, BootstrapError, Group, empty, only_one_installer, say
from controlplane.stack.environments import STAMP_NAME, Environment, Step, Unavailable, in_one_line, pins_write
from engine_agent.contracts.files import write_private

HERE = Path(__file__).parent
VERSION = "0.29.1"
WANTED = f"openapi-python-client=={VERSION}"
PINS = CHECKOUT / "constraints-clients.txt"
SIZE = Group("a generator of Python clients", (), 24, 25, 80)
HEADER = f"""\
# All of .venv-clients, which generates a Python client for tests/clients; written by `make lockclients`.
# Constraints for `pip install {WANTED}`; docs/decisions/0002-dependencies.md says why.
"""
NPM_CI = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
OLDEST_NODE = 18


@dataclass(slots=True)
class PythonClients(Environment):
    folder: Path = CHECKOUT / ".venv-clients"
    pins: Path = PINS
    name: str = f"openapi-python-client {VERSION}"
    proof: str = "import openapi_python_client, httpx"

    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        return [([*install, "--constraint", str(self.pins), WANTED], SIZE.packages)]

    def _size(self) -> Group:
        return SIZE


@dataclass(frozen=True, slots=True)
class NodeClients:
    """npm's packages, as package-lock.json pins them."""

    folder: Path = CHECKOUT / ".node-clients"
    wanted: Path = HERE

    def ready_modules(self) -> Path:
        """The folder node_modules, which is installed first where it is missing. Raises Unavailable."""
        _node_check()
        try:
            with only_one_installer(self.folder):
                if not self._is_installed():
                    self._install()
        except BootstrapError as error:
            raise Unavailable(in_one_line(str(error))) from None
        return self.folder / "node_modules"

    def _install(self) -> None:
        empty(self.folder)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.wanted / name, self.folder)
        say("installing the generator of TypeScript clients")
        done = subprocess.run(NPM_CI, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"npm cannot install what tests need: {in_one_line(done.stderr)}")
        write_private(self.folder / STAMP_NAME, self._fingerprint())

    def _is_installed(self) -> bool:
        stamp = self.folder / STAMP_NAME
        return stamp.exists() and stamp.read_text(encoding="utf-8") == self._fingerprint()

    def _fingerprint(self) -> str:
        return hashlib.sha256((self.wanted / "package-lock.json").read_bytes()).hexdigest()


def _node_check() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Unavailable(f"no node and npm on PATH: install Node.js {OLDEST_NODE} or newer")
    printed = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    major = printed.removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < OLDEST_NODE:
        raise Unavailable(f"node is {printed or 'broken'}: install Node.js {OLDEST_NODE} or newer")


PYTHON_CLIENTS = PythonClients()
NODE_CLIENTS = NodeClients()


def main() -> int:
    """Write constraints-clients.txt again; downloads little but metadata."""
    return pins_write([WANTED], PINS, HEADER)


if __name__ == "__main__":
    raise SystemExit(main())
