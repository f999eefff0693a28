"""Somebody else's software, in a virtualenv of its own that is made when somebody first asks for it.

Apart from ours, because its dependencies are pinned otherwise. A file of pins lists all that goes in.
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
NO_REASON = "for help visit"  # what pip adds below the reason
Lines = Callable[[Iterable[Mapping[str, str]]], list[str]]
Step = tuple[Sequence[str], int]  # what pip is asked, and about how many packages that is


class Unavailable(Exception):
    """Why it is not to be had here, in one line."""


@dataclass(slots=True)
class Environment(ABC):
    folder: Path
    pins: Path
    name: str  # and version
    proof: str  # whether it loads at all: a line of Python
    pip: Sequence[str] = PIP
    _problem: str | None = None

    @abstractmethod
    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        """What is installed, one after the other."""

    @abstractmethod
    def _size(self) -> Group:
        """What that comes to. Asked once the virtualenv is there, and empty. Raises BootstrapError."""

    def _platform_problem(self) -> str | None:
        """Why it cannot be installed on this machine, if that is known."""
        return None

    def ready_python(self) -> Path:
        """The Python that has it, which is installed first where it is not. Raises Unavailable; what failed is not
        tried again by this object.
        """
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
        """The stamp is written last: an installation that was interrupted has none, and starts from nothing."""
        try:
            stamped = (self.folder / STAMP_NAME).read_text(encoding="utf-8")
        except OSError:
            return False
        works = self.python.exists() and run_quietly([str(self.python), "-I", "-c", "pass"]).returncode == 0
        return works and stamped == self._fingerprint()

    def _fingerprint(self) -> str:
        """Changes when something else would be installed, or into another Python."""
        return hashlib.sha256(f"{sys.version_info[:2]}".encode() + self.pins.read_bytes()).hexdigest()

    def _install_problem(self) -> str | None:
        """Install; None when it worked. What there is to say goes to stderr: standard output is of whoever asks."""
        with redirect_stdout(sys.stderr):
            try:
                with bootstrap.only_one_installer(self.folder):
                    if not self.is_installed():  # whoever we waited for may have installed it
                        self._install_or_leave_nothing()
            except BootstrapError as error:
                if "\n" in str(error):  # the one line is whoever's who asks
                    say(str(error))
                return in_one_line(str(error))
        return None

    def _install_or_leave_nothing(self) -> None:
        """What failed is no environment: nobody is to take it for one, and it may be large."""
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
        """Without a pip of its own: ours installs into it, also where the distribution split off `ensurepip`."""
        made = run_quietly([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
        if made.returncode != 0:
            raise BootstrapError(f"cannot make {self.folder.name}: {in_one_line(made.stderr or made.stdout)}")

    def _prove(self) -> None:
        """It may install and then not load, as on a processor it was not built for; the stamp must not hide that."""
        tried = run_quietly([str(self.python), "-I", "-c", self.proof])
        if tried.returncode != 0:
            why = in_one_line(tried.stderr) or f"Python ended with status {tried.returncode}"
            raise BootstrapError(f"{self.name.split()[0]} was installed, but does not load here: {why}")


def in_one_line(told: str) -> str:
    """What a table has room for: the last error that was named, otherwise the last line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|\w*Error|\w*NotFound)\b", line) and NO_REASON not in line]
    return (errors or lines or [""])[-1]


def pinned(installed: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Names as every index spells them, in their order, with versions that are not of one build alone."""
    return sorted((re.sub(r"[-_.]+", "-", one["name"]).lower(), one["version"].split("+")[0]) for one in installed)


def pinned_lines(installed: Iterable[Mapping[str, str]]) -> list[str]:
    return [f"{name}=={version}" for name, version in pinned(installed)]


def pins_write(wanted: Sequence[str], pins: Path, header: str, lines_of: Lines = pinned_lines) -> int:
    """Write the constraints of an environment again; downloads little but metadata. Returns an exit status."""
    try:
        packages = bootstrap.planned([*PIP, *INSTALL, "--ignore-installed", *wanted])
    except BootstrapError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    lines = lines_of(packages)
    pins.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"luminet: pinned {len(lines)} packages in {pins.name}")
    return 0
