"""Create `.venv` and install into it: `python3 -I controlplane/stack/bootstrap.py control dev`.

Runs on any Python that the machine has, before anything is installed. So it uses only the standard library, and no
other module of Luminet.
"""

import sys

OLDEST, NEWEST = (3, 11), (3, 13)
if __name__ == "__main__" and not OLDEST <= sys.version_info[:2] <= NEWEST:
    sys.exit(
        "Luminet needs Python 3.11, 3.12 or 3.13; %s is %d.%d. "
        "Install one of them, or name it: make PYTHON=/path/to/python3.12 up"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "luminet-installed.json"
UNFINISHED = VENV / "luminet-unfinished"
LOCK_NAME = "luminet-lock"
QUIET_SECONDS = 5.0
LAST_LINES = 15


@dataclass(frozen=True)
class Group:
    """The extras that a make target needs, with their approximate size (measured, Linux x86-64, Python 3.11)."""

    what: str
    extras: tuple[str, ...]
    packages: int
    download_mb: int
    disk_mb: int


# torch built for CUDA, which is what pip's index offers on most Linux machines.
CUDA = Group("the engine's packages, torch as built for CUDA", ("engine",), 32, 1390, 2970)
GROUPS = {
    "control": Group("the control plane, PostgreSQL and Redis", ("control", "embedded", "agent"), 69, 66, 230),
    "dev": Group("the tools that test and check it", ("dev",), 85, 400, 1490),
    "engine": Group("the engine's packages, torch as built for CPUs", ("engine",), 7, 202, 920),
    "bench": Group("the bench's plots", ("bench",), 8, 41, 180),
}


class BootstrapError(Exception):
    """A problem of the installation, in one sentence for the person at the terminal."""


def main(names: Sequence[str]) -> int:
    try:
        ensure([*names])
    except BootstrapError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nluminet: interrupted; run the same command again to go on where it stopped", file=sys.stderr)
        return 130
    return 0


def ensure(names: list[str]) -> None:
    """Install the missing groups; takes milliseconds when none is missing."""
    if all(is_installed(name) for name in names) and _venv_works():
        return
    with only_one_installer(VENV):
        if not _venv_works():
            _make_venv()
        _forget_half_installed()
        # Check again: a new environment is empty, and another installer may have finished while we waited.
        missing = [name for name in names if not is_installed(name)]
        if missing:
            groups = [_chosen_by_pip(name) for name in missing]
            announce(groups, VENV, _short(VENV))
            _install(groups)
            _write_stamps({**_stamps(), **dict.fromkeys(missing, fingerprint())})
            UNFINISHED.unlink(missing_ok=True)


def is_installed(name: str) -> bool:
    return _stamps().get(name) == fingerprint()


def fingerprint() -> str:
    """Return a hash of what would be installed; the settings of tools in pyproject.toml do not count."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    relevant = json.dumps([project["build-system"], project["project"]], sort_keys=True)
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8")
    return hashlib.sha256(f"{relevant}\n{pins}\n{CHECKOUT}".encode()).hexdigest()


def space_problem(groups: Sequence[Group], *, folder: Path, free_mb: float) -> str | None:
    """Return why the groups do not fit on the disk, or None. Downloads and installed files need space together."""
    needed = sum(group.disk_mb + group.download_mb for group in groups)
    if free_mb >= needed:
        return None
    return (
        f"{folder} has {free_mb:,.0f} MB free and the installation needs about {needed:,} MB: free some and try again"
    )


def _stamps() -> dict[str, str]:
    try:
        stamps = json.loads(STAMPS.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _chosen_by_pip(name: str) -> Group:
    """Return the group, or its CUDA form if pip would install that: checked first, as it is three times as large."""
    if name == "engine" and takes_cuda(_pip_install(["engine"])):
        return CUDA
    return GROUPS[name]


def takes_cuda(install: Sequence[str]) -> bool:
    """Return whether this installation would include torch built for CUDA."""
    return any(package["name"].startswith("nvidia-") for package in planned(install))


def planned(install: Sequence[str]) -> list[dict[str, str]]:
    """Return the metadata of each package that this pip command would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        dry_run = run_quietly([*install, "--quiet", "--dry-run", "--report", str(report)])
        if dry_run.returncode != 0:
            raise BootstrapError(_why_pip_failed((dry_run.stdout + dry_run.stderr).splitlines()))
        return [package["metadata"] for package in json.loads(report.read_text(encoding="utf-8"))["install"]]


def announce(groups: Sequence[Group], folder: Path, target: str) -> None:
    """Announce the download's size and raise BootstrapError if there is no space for it."""
    free_mb = shutil.disk_usage(folder).free / 1e6
    for group in groups:
        say(f"will install {group.what}: about {group.download_mb} MB to download, {group.disk_mb} MB on disk")
    say(f"into {target}, where {free_mb / 1000:,.1f} GB are free")
    problem = space_problem(groups, folder=folder, free_mb=free_mb)
    if problem:
        raise BootstrapError(problem)


def _venv_works() -> bool:
    if not PYTHON.exists():
        return False
    script = f"import pip, sys; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    return run_quietly([str(PYTHON), "-I", "-c", script]).returncode == 0


def _make_venv() -> None:
    """Create the virtual environment, even where the distribution ships no `ensurepip` (Debian's python3-venv)."""
    if any(entry.name != LOCK_NAME for entry in VENV.iterdir()):
        say(f"{_short(VENV)} does not work with this Python any more; making it again")
    say(f"making {_short(VENV)} with Python {sys.version_info.major}.{sys.version_info.minor}")
    empty(VENV)
    completed = run_quietly([sys.executable, "-m", "venv", str(VENV)])
    if completed.returncode == 0:
        return
    empty(VENV)
    bare = run_quietly([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet", "pip"]
    if bare.returncode != 0 or run_quietly(pip).returncode != 0:
        reason = (completed.stderr or completed.stdout).strip().splitlines()
        raise BootstrapError(f"cannot make {VENV}: {reason[-1] if reason else 'python3 -m venv failed'}")


def empty(folder: Path) -> None:
    """Delete everything in the environment except the lock, which we hold: a new file would be a different lock."""
    for entry in folder.iterdir():
        if entry.name != LOCK_NAME:
            remove(entry)


def remove(entry: Path) -> None:
    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _install(groups: list[Group]) -> None:
    """Install all groups in one run of pip, which is faster than one run for each."""
    started = time.monotonic()
    UNFINISHED.touch()
    command = [*_pip_install([extra for group in groups for extra in group.extras]), "--progress-bar", "off"]
    show_progress(command, packages=sum(group.packages for group in groups))
    say(f"installed {' and '.join(group.what for group in groups)} in {time.monotonic() - started:.0f} s")


def _pip_install(extras: Sequence[str]) -> list[str]:
    pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    return [*pip, "--constraint", str(CHECKOUT / "constraints.txt"), "--editable", f"{CHECKOUT}[{','.join(extras)}]"]


def show_progress(command: list[str], *, packages: int) -> None:
    """Run pip and show its progress: one moving line on a terminal, else a line every few seconds."""
    lines: list[str] = []
    collected, last_said = 0, time.monotonic()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                collected += line.startswith("Collecting ")
                progress_line = _news(line, collected, packages)
                if progress_line and sys.stdout.isatty():
                    print(f"\r\x1b[K  {progress_line[: shutil.get_terminal_size().columns - 3]}", end="", flush=True)
                elif progress_line and time.monotonic() - last_said > QUIET_SECONDS:
                    say(progress_line)
                    last_said = time.monotonic()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            if sys.stdout.isatty():
                print("\r\x1b[K", end="", flush=True)
    if code != 0:
        raise BootstrapError(_why_pip_failed(lines))


def _news(line: str, collected: int, packages: int) -> str | None:
    words = line.split()
    if line.startswith("Collecting "):
        return f"{min(collected, packages)} of about {packages} packages: {words[1]}"
    if line.strip().startswith("Downloading ") and line.rstrip().endswith("B)"):
        return f"downloading {words[1].rsplit('/', 1)[-1]} {' '.join(words[2:])}"
    if line.startswith("Installing collected packages"):
        return "unpacking (this takes longest)"
    return None


def _why_pip_failed(lines: list[str]) -> str:
    if any("No space left on device" in line for line in lines):
        return f"the disk of {CHECKOUT} is full: free some and run the same command again"
    relevant_lines = [line for line in lines if not line.lstrip().startswith("WARNING")]
    excerpt = "\n".join(f"    {line}" for line in relevant_lines[-LAST_LINES:])
    return f"pip could not install everything; it said:\n{excerpt}\n  Correct that and run the same command again."


def _forget_half_installed() -> None:
    """Delete records that a killed installation left unfinished, because pip would count them as installed."""
    if not UNFINISHED.exists():
        return
    for record in VENV.glob("lib/python*/site-packages/*.dist-info"):
        if not (record / "RECORD").exists():
            shutil.rmtree(record)


def _write_stamps(stamps: dict[str, str]) -> None:
    temporary = STAMPS.with_suffix(".new")
    temporary.write_text(json.dumps(stamps, indent=2) + "\n", encoding="utf-8")
    temporary.replace(STAMPS)


@contextmanager
def only_one_installer(folder: Path) -> Iterator[None]:
    """Lock the environment, so that `make up` and `make test` in two terminals do not install into it at once."""
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / LOCK_NAME).open("a")
    except OSError as error:
        reason = "is read-only" if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else f"({error.strerror})"
        raise BootstrapError(
            f"cannot write to {CHECKOUT}, which {reason}: Luminet installs into {folder.name} there, so copy "
            "the checkout to a folder of your own"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another installation into this environment is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_quietly(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _short(path: Path) -> str:
    return str(path.relative_to(CHECKOUT.parent)) if path.is_relative_to(CHECKOUT.parent) else str(path)


def say(text: str) -> None:
    print(f"luminet: {text}", flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONHOME", None)
    unknown = [name for name in sys.argv[1:] if name not in GROUPS]
    sys.exit(f"no such group: {', '.join(unknown)}" if unknown else main(sys.argv[1:]))
