"""A separate virtualenv for third-party software, created when it is first needed.

Separate because its dependencies are pinned differently from ours. A file of pins lists every package in it.
"""

import hashlib
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from controlplane.stack import bootstrap
from controlplane.stack.bootstrap import BootstrapError, Group, run_quietly, say, show_progress
from engine_agent.contracts.files import write_private

STAMP_NAME = "luminet-installed"
PIP = (sys.executable, "-m", "pip")
INSTALL = ("install", "--no-input", "--disable-pip-version-check")
NO_REASON = "for help visit"  # a line that pip adds below the reason
Lines = Callable[[Iterable[Mapping[str, str]]], list[str]]
Step = tuple[Sequence[str], int]  # arguments of pip, and about how many packages it installs


class Unavailable(Exception):
    """The software is not available on this machine. The message says why in one line."""


@dataclass(slots=True)
class Environment(ABC):
    folder: Path
    pins: Path
    name: str  # with its version
    proof: str  # a line of Python that fails if the software does not load
    pip: Sequence[str] = PIP
    _problem: str | None = None

    @abstractmethod
    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        """Return the pip steps of the installation, in order."""

    @abstractmethod
    def _size(self) -> Group:
        """Return the installation's size. Called with an empty virtualenv in place. Raises BootstrapError."""

    def _platform_problem(self) -> str | None:
        """Return why this machine cannot install it, or None if no reason is known."""
        return None

    def ready_python(self) -> Path:
        """Return the Python with the software, installed if needed. Raises Unavailable; a failure is not retried."""
        if self.is_installed():
            return self.python
        if self._problem is None:
            self._problem = self._platform_problem() or self._install_problem()
        if self._problem is not None:
            raise Unavailable(self._problem)
        return self.python

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def is_installed(self) -> bool:
        """Return whether the installation is complete. Its stamp is written last: without it, start over."""
        try:
            stamped = (self.folder / STAMP_NAME).read_text(encoding="utf-8")
        except OSError:
            return False
        works = self.python.exists() and run_quietly([str(self.python), "-I", "-c", "pass"]).returncode == 0
        return works and stamped == self._fingerprint()

    def _fingerprint(self) -> str:
        """Return a hash that changes when other packages, or another Python, would be installed."""
        return hashlib.sha256(f"{sys.version_info[:2]}".encode() + self.pins.read_bytes()).hexdigest()

    def _install_problem(self) -> str | None:
        """Install, and return the problem or None. Messages go to stderr: standard output belongs to the caller."""
        with redirect_stdout(sys.stderr):
            try:
                with bootstrap.only_one_installer(self.folder):
                    if not self.is_installed():  # another process may have installed it while we waited
                        self._install_or_leave_nothing()
            except BootstrapError as error:
                if "\n" in str(error):  # only the one line is for the caller
                    say(str(error))
                return in_one_line(str(error))
        return None

    def _install_or_leave_nothing(self) -> None:
        """Install, and empty the directory if that fails: half an environment is useless and may be large."""
        try:
            self._install()
        except BootstrapError:
            bootstrap.empty(self.folder)
            raise

    def _install(self) -> None:
        began = time.monotonic()
        bootstrap.empty(self.folder)
        self._make_venv()
        bootstrap.announce([self._size()], self.folder, self.folder.name)
        for command, packages in self._steps([*self.pip, "--python", str(self.python), *INSTALL]):
            show_progress([*command, "--progress-bar", "off"], packages=packages)
        say("trying whether it loads")
        self._prove()
        write_private(self.folder / STAMP_NAME, self._fingerprint())
        say(f"installed {self.name} in {time.monotonic() - began:.0f} s")

    def _make_venv(self) -> None:
        """Create the virtualenv without pip: ours installs into it, even if the distribution has no `ensurepip`."""
        completed = run_quietly([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
        if completed.returncode != 0:
            raise BootstrapError(f"cannot make {self.folder.name}: {in_one_line(completed.stderr or completed.stdout)}")

    def _prove(self) -> None:
        """Raise BootstrapError if the software does not load, as on an unsupported processor."""
        tried = run_quietly([str(self.python), "-I", "-c", self.proof])
        if tried.returncode != 0:
            why = in_one_line(tried.stderr) or f"Python ended with status {tried.returncode}"
            raise BootstrapError(f"{self.name.split()[0]} was installed, but does not load here: {why}")


def in_one_line(output: str) -> str:
    """Return pip's output in one line for a table: the last error in it, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|\w*Error|\w*NotFound)\b", line) and NO_REASON not in line]
    return (errors or lines or [""])[-1]


def pinned(installed: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return sorted normalised names with versions, without the local part that names a build."""
    return sorted(
        (re.sub(r"[-_.]+", "-", package["name"]).lower(), package["version"].split("+")[0]) for package in installed
    )


def pinned_lines(installed: Iterable[Mapping[str, str]]) -> list[str]:
    return [f"{name}=={version}" for name, version in pinned(installed)]


def pins_write(requirements: Sequence[str], pins: Path, header: str, lines_of: Lines = pinned_lines) -> int:
    """Resolve and rewrite an environment's constraints; downloads little but metadata. Return an exit status."""
    try:
        packages = bootstrap.planned([*PIP, *INSTALL, "--ignore-installed", *requirements])
    except BootstrapError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    lines = lines_of(packages)
    pins.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"luminet: pinned {len(lines)} packages in {pins.name}")
    return 0
