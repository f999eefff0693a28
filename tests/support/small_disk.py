"""A small disk that is really full when it is: a tmpfs in a mount namespace of its own, as root or without.

Nothing of the machine's own is mounted anywhere. Who runs on it is started by `within`; others see it through `root`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.settings.env import CHECKOUT
from tests.suite import outliving

MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$0" && echo ready && exec cat'
ENTER = 'cd "$0" && exec "$@"'


class NoSmallDisk(RuntimeError):
    """This machine lets nobody mount one. The message says why."""


@dataclass(frozen=True, slots=True)
class SmallDisk:
    place: Path  # where it is for whoever runs on it
    pid: int

    @property
    def root(self) -> Path:
        """Where it is for everybody else."""
        return Path(f"/proc/{self.pid}/root{self.place}")

    def within(self, command: Sequence[str]) -> tuple[str, ...]:
        user = () if os.geteuid() == 0 else ("-U", "--preserve-credentials")
        return ("nsenter", "-t", str(self.pid), *user, "-m", "--", "sh", "-c", ENTER, str(CHECKOUT), *command)

    def fill(self) -> None:
        """To the last byte."""
        with (self.root / "filler").open("ab", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        (self.root / "filler").unlink()


@contextmanager
def small_disk(place: Path, *, mebibytes: int) -> Iterator[SmallDisk]:
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        raise NoSmallDisk("a disk to fill needs util-linux' unshare and nsenter")
    place.mkdir(parents=True, exist_ok=True)
    command = ("unshare", "-m" if os.geteuid() == 0 else "-Urm", "sh", "-c", MOUNT, str(place), f"{mebibytes}m")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        outliving.name(process.pid)
        try:
            if process.stdout.readline() != "ready\n":
                raise NoSmallDisk(f"a disk to fill cannot be mounted here: {process.stderr.read().strip()}")
            yield SmallDisk(place, process.pid)
        finally:
            process.kill()
