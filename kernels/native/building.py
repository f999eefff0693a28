"""C sources to shared libraries: compiled once for each processor and compiler, kept in the user's cache.

Nothing is loaded that another user could have written: a folder that others may write to is not used, and what is
compiled then is thrown away when the process ends.
"""

import os
import platform
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")  # the first there is; CC in the environment comes before them
COMMON_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
TUNINGS = ("-march=native", "-mcpu=native", "")  # the first that the compiler takes
BUILD_SECONDS = 120.0


class NotBuilt(Exception):
    """There is no library, and the message says why."""


def built(source: str, *flags: str) -> Path:
    """The shared library of a source in this folder. Raises NotBuilt."""
    compiler = find_compiler()
    key = _key(compiler, flags)
    folder = cache_folder()
    library = folder / f"{Path(source).stem}-{key}.so"
    if not _is_ours(library):
        _compile(compiler, SOURCES / source, flags, library)
    return library


def find_compiler() -> str:
    """Its path. Raises NotBuilt."""
    for name in (os.environ.get("CC"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return found
    raise NotBuilt(f"no C compiler here ({', '.join(COMPILERS)})")


def _key(compiler: str, flags: tuple[str, ...]) -> str:
    """Of all that decides what the library is."""
    sources = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]"))]
    decides = (*sources, compiler, compiler_version(compiler), processor(), *COMMON_FLAGS, *TUNINGS, *flags)
    return sha256("\0".join(decides).encode()).hexdigest()[:24]


@cache
def compiler_version(compiler: str) -> str:
    """The first line it has to say about itself. Raises NotBuilt."""
    return _run([compiler, "--version"]).partition("\n")[0]


def processor() -> str:
    """What `native` means here: two processors of one name may differ in what a hypervisor lets through."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in first.splitlines() if line.startswith(("model name", "flags", "Features", "CPU "))]
    return "\n".join([platform.machine(), *told])


def cache_folder() -> Path:
    """Of this user alone; one for this process where there is none such."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "luminet" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _own_folder()
    return folder if _is_ours(folder) and os.access(folder, os.W_OK) else _own_folder()


@cache
def _own_folder() -> Path:
    kept = tempfile.TemporaryDirectory(prefix="luminet-kernels-")
    _kept_until_exit.append(kept)
    return Path(kept.name)


_kept_until_exit: list[tempfile.TemporaryDirectory[str]] = []


def _is_ours(path: Path) -> bool:
    """It is there, and nobody else may write to it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(compiler: str, source: Path, flags: tuple[str, ...], library: Path) -> None:
    """Whole or not at all, also where two processes do it at once."""
    handle, name = tempfile.mkstemp(dir=library.parent, prefix=".building-")
    os.close(handle)
    try:
        for tuning in TUNINGS:
            tuned = [tuning] if tuning else []
            try:
                _run([compiler, *COMMON_FLAGS, *flags, *tuned, str(source), "-o", name, "-lm"])
                break
            except NotBuilt:
                if not tuning:
                    raise
        os.chmod(name, 0o700)
        os.replace(name, library)
    finally:
        Path(name).unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=BUILD_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(f"{command[0]}: {error}") from None
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if "error" in line] or [f"status {done.returncode}"]
        raise NotBuilt(f"{command[0]}: {told[0]}")
    return done.stdout
