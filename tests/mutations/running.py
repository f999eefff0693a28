"""One mutation against the test files that cover its line, in a clone of the checkout, until a test fails."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.mutations.drawing import find_again
from tests.mutations.editing import Mutation, is_valid

# A test that fails, by pytest's last lines; of a failed subtest, too.
FAILED = re.compile(
    r"^(?:FAILED|ERROR|SUBFAILED.*?) (tests/\S+?\.py(?:::[^\s\[]+(?:\[.*?\])?)?)(?: - .*)?$", re.MULTILINE
)
NO_TESTS = 5
CHUNK_SECONDS = 120.0  # files of about so many seconds share one pytest, since each starts servers anew
PATIENCE_SECONDS = 300.0  # and ten times what they take: a mutation that loops forever, not a slow machine
STOP_SECONDS = 60.0
GUESSED_SECONDS = {"tests/unit": 5.0, "tests/contract": 10.0, "tests/integration": 30.0}
SLOWEST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """killed, survived, uncovered, invalid (as syntax), or gone: not found in this checkout."""

    state: str
    by: str = ""
    seconds: float = 0.0
    files: int = 0
    ignored: list[str] = field(default_factory=list)  # what fails without the mutation, too


class Clone:
    """A copy of a checkout's last commit, which Python finds before the checkout that its environment names."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.folder = folder
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--shared", str(tree), str(folder)]
        subprocess.run(clone, check=True)
        (folder / ".venv").symlink_to((tree / ".venv").resolve())
        # Python takes a cached file for current when its source has the same second and size.
        self._seconds = count(int(time.time()))

    def write(self, file: str, source: bytes) -> None:
        path = self.folder / file
        path.write_bytes(source)
        second = next(self._seconds)
        os.utime(path, (second, second))

    @contextlib.contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        source = (self.folder / mutation.file).read_bytes()
        self.write(mutation.file, mutation.applied(source))
        try:
            yield
        finally:
            self.write(mutation.file, source)

    def pytest(self, items: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Its status, None when it did not end in time, and its output."""
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)  # each run has the same chance
        command = [".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *items]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _stop(process)
            output.seek(0)
            return status, output.read()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)


def run_mutation(
    clone: Clone,
    mutation: Mutation,
    covering: Callable[[Mutation], Iterable[str]],
    durations: Mapping[str, float],
    first: str = "",
) -> Outcome:
    """`covering`: which test files run its line.

    `first` is the test that killed it in another suite: its file is tried first, wherever it is by now.
    """
    began = time.monotonic()
    path = clone.folder / mutation.file
    here = find_again(mutation, path.read_bytes()) if path.exists() else None
    if here is None:
        return Outcome("gone")
    if not is_valid(here.applied(path.read_bytes())):
        return Outcome("invalid")
    files = [file for file in covering(here) if (clone.folder / file).exists()]
    seconds = {file: durations.get(file, guessed_seconds(file)) for file in files}
    ignored: list[str] = []
    for chunk in chunks(seconds, first):
        if by := _killer(clone, here, chunk, sum(seconds[file] for file in chunk), ignored):
            return Outcome("killed", by, time.monotonic() - began, len(files), ignored)
    return Outcome("survived" if files else "uncovered", "", time.monotonic() - began, len(files), ignored)


def _killer(clone: Clone, mutation: Mutation, chunk: list[str], expected: float, ignored: list[str]) -> str:
    """The item that fails with the mutation and not without it."""
    patience = PATIENCE_SECONDS + 10 * expected
    while chunk:
        with clone.mutated(mutation):
            status, output = clone.pytest(chunk, patience)
        if status in (0, NO_TESTS):
            return ""
        failed = FAILED.search(output) if status is not None else None
        suspects = [failed[1]] if failed else chunk
        if clone.pytest(suspects, patience)[0] in (0, NO_TESTS):
            return suspects[0] if failed else f"{'no end' if status is None else f'status {status}'} in {chunk}"
        ignored += suspects
        chunk = [file for file in chunk if failed and file != failed[1].partition("::")[0]]
    return ""


def guessed_seconds(file: str) -> float:
    return next((seconds for folder, seconds in GUESSED_SECONDS.items() if file.startswith(folder)), SLOWEST_SECONDS)


def chunks(seconds: Mapping[str, float], first: str = "") -> Iterator[list[str]]:
    """The file that is called as that of `first`, then the cheapest first, in few runs."""
    name = Path(first.partition("::")[0]).name
    alone = sorted(file for file in seconds if Path(file).name == name)
    if alone:
        yield alone
    chunk: list[str] = []
    for file in sorted(seconds.keys() - set(alone), key=lambda file: (seconds[file], file)):
        if chunk and sum(seconds[each] for each in [*chunk, file]) > CHUNK_SECONDS:
            yield chunk
            chunk = []
        chunk.append(file)
    if chunk:
        yield chunk
