"""nginx, HAProxy and promtool: the one a variable names, PATH's, or out of Debian's package, unpacked into a cache."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.debian import Package, cached_or_fetched, run_quietly

SECONDS: Final = 60.0


class ProgramUnavailable(RuntimeError):
    """None here. The message is one sentence: what was tried, and what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    package: Package
    inside: str  # of the unpacked package
    asked: str  # what makes it say its version
    variable: str = ""  # names one, where it is set

    def found(self) -> tuple[Path, dict[str, str]]:
        """The program, and the environment that it needs besides. Raises ProgramUnavailable."""
        name, paths = Path(self.inside).name, f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
        if found := os.environ.get(self.variable) or shutil.which(name, path=paths):
            return Path(found), {}
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "luminet", name).expanduser().absolute()
        try:
            copy = cached_or_fetched(
                self.package, cache, works=lambda copy: bool(self._version(copy)), proven=self._proven
            )
        except OSError as error:
            raise self.package.refusal(f"the cache is unusable ({error})") from error
        return copy / self.inside, self._environment(copy)

    def _environment(self, copy: Path) -> dict[str, str]:
        libraries = sorted({str(path.parent) for path in (copy / "root").rglob("*.so*")})
        return {} if self.package.is_alone else {"LD_LIBRARY_PATH": ":".join(libraries)}

    def _version(self, copy: Path) -> str:
        environment = {**os.environ, **self._environment(copy)}
        try:
            done = run_quietly([str(copy / self.inside), self.asked], env=environment, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return (done.stdout + done.stderr).partition("\n")[0] if done.returncode == 0 else ""  # nginx tells stderr

    def _works(self, copy: Path) -> bool:
        return bool(self._version(copy))

    def _proven(self, copy: Path) -> str:
        if version := self._version(copy):
            return version
        remedy = self.package.remedy
        raise ProgramUnavailable(f"Debian's {self.package.what} was unpacked but does not start: {remedy}")


def _package(name: str, brought_by: str, least_bytes: int, *, remedy: str = "", is_alone: bool = False) -> Package:
    remedy = f"install {brought_by} (Debian: apt-get install {brought_by}){remedy}"
    return Package(name, (brought_by,), least_bytes, remedy, ProgramUnavailable, is_alone=is_alone)


NGINX: Final = Program(_package("nginx", "nginx", 5_000_000, is_alone=True), "root/usr/sbin/nginx", "-v")
HAPROXY: Final = Program(
    _package("haproxy", "haproxy", 20_000_000, remedy=" or set LUMINET_HAPROXY=/path"),
    "root/usr/sbin/haproxy",
    "-v",
    "LUMINET_HAPROXY",
)
PROMTOOL: Final = Program(
    _package("promtool", "prometheus", 150_000_000, remedy=" or set LUMINET_PROMTOOL=/path", is_alone=True),
    "root/usr/bin/promtool",
    "--version",
    "LUMINET_PROMTOOL",
)
