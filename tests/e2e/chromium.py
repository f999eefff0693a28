"""Find a real Chromium for the browser tests, or unpack Debian's into a cache without being root.

Playwright's own browsers are not used. Nothing here opens a page: the caller passes `executable`, `env` and
`LAUNCH_ARGS` to `playwright.chromium.launch`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

VARIABLE: Final = "LUMINET_CHROMIUM"
COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES: Final = ("chromium", "fonts-dejavu-core")
REMEDY: Final = f"install chromium (Debian: apt-get install chromium) or set {VARIABLE}=/path"
COMPLETE: Final = "complete"
LEAST_FREE_BYTES: Final = 700_000_000  # what 25 missing packages take; a bare machine lacks 176
VERSION_TIMEOUT_SECONDS: Final = 20.0
APT_TIMEOUT_SECONDS: Final = 900.0

LAUNCH_ARGS: Final[tuple[str, ...]] = (
    "--no-sandbox",  # an unpacked copy has no setuid helper, and containers often forbid user namespaces
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers give /dev/shm 64 MB, and a page that outgrows it crashes
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


class ChromiumUnavailable(RuntimeError):
    """No browser. The message is one sentence: what was tried, and what to do."""


@dataclass(frozen=True, slots=True)
class Chromium:
    """`env` is the browser's whole environment, since Playwright replaces ours with what it is given."""

    executable: Path
    env: Mapping[str, str] = field(repr=False)  # a failing test must not print the caller's secrets
    origin: Literal["system", "unpacked"]


def find_or_fetch(cache_dir: Path | None = None) -> Chromium:
    """The first that works: $LUMINET_CHROMIUM, PATH, the cached copy, Debian's package unpacked into the cache."""
    if named := os.environ.get(VARIABLE):
        return Chromium(_executable_named(named), dict(os.environ), "system")
    if found := _installed():
        return Chromium(found, dict(os.environ), "system")
    try:
        return _cached_or_fetched((cache_dir or default_cache_dir()).absolute())
    except OSError as error:
        raise ChromiumUnavailable(f"no Chromium on PATH, and the cache is unusable ({error}): {REMEDY}") from error


def default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base, "luminet", "chromium").expanduser()
    except RuntimeError as error:
        raise ChromiumUnavailable(f"no home directory to cache Chromium in: {REMEDY}") from error


# Pure decisions


def is_browser_version(line: str) -> bool:
    """Whether `--version` answered as a browser does. Ubuntu's snap stub names chromium too, but gives no version."""
    return re.match(r"(Chromium|Google Chrome)( [A-Za-z ]+)? \d+(\.\d+)+", line) is not None


def packages_to_fetch(simulation: str) -> list[str]:
    """The names `apt-get install -s` would install here, which leaves out what the machine already has."""
    return [line.split()[1] for line in simulation.splitlines() if line.startswith("Inst ")]


def download_bytes(uris: str) -> int:
    """Total of `apt-get download --print-uris`, whose lines are: 'uri' file size hash."""
    return sum(int(line.split()[2]) for line in uris.splitlines() if line.startswith("'"))


def needed_bytes(download: int) -> int:
    """Room for the archives and what they become: 124 MB became 396, and 209 became 724 on a bare machine."""
    return max(LEAST_FREE_BYTES, 5 * download)


def first_complaint(output: str) -> str:
    """What apt or dpkg gave as its first error, else its first warning, else its last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for marks in (("E: ", "Err:", "dpkg-deb: error", "dpkg: error"), ("W: ",)):
        for line in lines:
            if line.startswith(marks):
                return line
    return lines[-1] if lines else "no message"


def missing_libraries(ldd: str) -> list[str]:
    return [line.split()[0] for line in ldd.splitlines() if line.rstrip().endswith("=> not found")]


def library_dirs(root: Path) -> list[Path]:
    """Every directory with a shared library: some, like pulseaudio's, are found only through a path of their own."""
    shared = re.compile(r"\.so(\.\d+)*$")
    return sorted(Path(top) for top, _, names in os.walk(root) if any(shared.search(name) for name in names))


def fonts_conf(root: Path, cache: Path) -> str:
    """The machine's fonts, if it has any, and the unpacked ones, with a cache we may write."""
    families = (("sans-serif", "DejaVu Sans"), ("serif", "DejaVu Serif"), ("monospace", "DejaVu Sans Mono"))
    aliases = [f"<alias><family>{f}</family><prefer><family>{p}</family></prefer></alias>" for f, p in families]
    lines = (
        '<?xml version="1.0"?>',
        '<!DOCTYPE fontconfig SYSTEM "fonts.dtd">',
        "<fontconfig>",
        '<include ignore_missing="yes">/etc/fonts/fonts.conf</include>',
        f"<dir>{escape(str(root / 'usr/share/fonts'))}</dir>",
        f"<cachedir>{escape(str(cache / 'fontconfig'))}</cachedir>",
        *aliases,
        "</fontconfig>",
    )
    return "\n".join(lines) + "\n"


# On this machine


def _executable_named(value: str) -> Path:
    path = Path(value).absolute()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ChromiumUnavailable(f"{VARIABLE}={value} is not an executable file: correct it, or unset it to search")
    return path


def _installed() -> Path | None:
    for command in COMMANDS:
        found = shutil.which(command)
        if found and _version(Path(found), os.environ):
            return Path(found).absolute()
    return None


def _version(executable: Path, env: Mapping[str, str]) -> str | None:
    """The version line, or None from whatever fails, hangs or is not a browser."""
    try:
        done = _run([str(executable), "--version"], env=env, timeout=VERSION_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if is_browser_version(line)]
    return lines[0] if lines and done.returncode == 0 else None


def _run(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=env,
        cwd=cwd,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# The cache: COMPLETE is written into a copy that has started, and the copy is then renamed to `unpacked` in one step.


def _cached_or_fetched(cache: Path) -> Chromium:
    if ready := _cached(cache):  # before the lock, so that a cache which is read-only serves too
        return ready
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache):
        return _cached(cache) or _fetched(cache)


def _cached(cache: Path) -> Chromium | None:
    copy = cache / "unpacked"
    if not (copy / COMPLETE).is_file():
        return None
    chromium = _unpacked_chromium(copy)
    return chromium if _version(chromium.executable, chromium.env) else None


def _unpacked_chromium(copy: Path) -> Chromium:
    root = copy / "root"
    env = dict(os.environ)
    inherited = [env["LD_LIBRARY_PATH"]] if env.get("LD_LIBRARY_PATH") else []
    env["LD_LIBRARY_PATH"] = ":".join([*map(str, library_dirs(root)), *inherited])
    # apt brings fonts or their configuration only where the machine lacks them.
    if (root / "usr/share/fonts").is_dir() or (root / "etc/fonts").is_dir():
        env.setdefault("FONTCONFIG_FILE", str(_written_fonts_conf(copy)))
    return Chromium(root / "usr/lib/chromium/chromium", env, "unpacked")


def _written_fonts_conf(copy: Path) -> Path:
    """Kept in step with where the copy lies now, and left alone when it already is."""
    path, text = copy / "fonts.conf", fonts_conf(copy / "root", copy)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Waiting for another process that is fetching Chromium …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(cache: Path) -> Chromium:
    """Fetch, prove that it starts, and only then put it where the next run looks. The lock is held."""
    final = cache / "unpacked"
    if final.exists():
        _say(f"The Chromium in {final} does not start any more, so it is fetched again.")
    for abandoned in cache.glob("fetch-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache, ignore_cleanup_errors=True) as work:
        copy = _unpack_debian(Path(work))
        (copy / COMPLETE).write_text(_proven_version(_unpacked_chromium(copy)) + "\n")
        if final.exists():
            final.rename(Path(work, "broken"))
        copy.rename(final)
    return _unpacked_chromium(final)


def _proven_version(chromium: Chromium) -> str:
    if version := _version(chromium.executable, chromium.env):
        return version
    ldd = _run(["ldd", str(chromium.executable)], env=chromium.env, timeout=VERSION_TIMEOUT_SECONDS)
    missing = ", ".join(missing_libraries(ldd.stdout)) or "nothing that ldd can name"
    raise ChromiumUnavailable(f"Debian's Chromium was unpacked but does not start (missing: {missing}): {REMEDY}")


# Debian's package, unpacked as whoever we are


def _unpack_debian(work: Path) -> Path:
    """Download into `work` and return the unpacked copy there."""
    _require_tools()
    _require_room(work, LEAST_FREE_BYTES)
    archives, copy = work / "archives", work / "copy"
    apt = _Apt(work)
    _say("Fetching Debian's Chromium: reading the package lists …")
    names = apt.wanted()
    size = download_bytes(apt.run("download", "--print-uris", *names))
    _require_room(work, needed_bytes(size))
    _say(f"Fetching Debian's Chromium: {len(names)} packages, {size / 1e6:.0f} MB …")
    apt.run("download", *names)
    _say(f"Unpacking {len(names)} packages …")
    for archive in sorted(archives.glob("*.deb")):
        _checked(["dpkg", "-x", str(archive), str(copy / "root")], work)
        archive.unlink()  # so that the peak on disk stays under `needed_bytes`
    return copy


def _require_tools() -> None:
    absent = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if absent:
        lacks = " and no ".join(absent)
        raise ChromiumUnavailable(f"no Chromium on PATH, and no {lacks} to fetch Debian's with: {REMEDY}")


def _require_room(work: Path, needed: int) -> None:
    free = shutil.disk_usage(work).free
    if free < needed:
        sizes = f"needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
        raise ChromiumUnavailable(f"no Chromium on PATH, and too little room in {work.parent} ({sizes}): {REMEDY}")


class _Apt:
    """apt-get with lists, cache and archives of its own: it reads the machine's sources and changes nothing."""

    def __init__(self, work: Path) -> None:
        self._work = work
        for name in ("lists/partial", "archives/partial", "copy/root"):
            (work / name).mkdir(parents=True)
        # A file rather than -o: it is read last, and only a file can #clear the hooks that expect root.
        (work / "apt.conf").write_text(
            f'Dir::State::Lists "{work}/lists";\nDir::Cache "{work}";\nDir::Cache::archives "{work}/archives";\n'
            'Debug::NoLocking "1";\nAPT::Sandbox::User "";\n'
            'Acquire::Languages "none";\nAcquire::Retries "3";\nAcquire::http::Timeout "30";\n'
            "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )

    def run(self, *arguments: str) -> str:
        return _checked(self._command(*arguments), self._work)

    def wanted(self) -> list[str]:
        # A third-party source may fail while Debian's answers: update's words matter only if chromium is not there.
        updated = _tool(self._command("update"), self._work)
        simulated = _tool(self._command("install", "-s", "--no-install-recommends", *PACKAGES), self._work)
        names = packages_to_fetch(simulated.stdout)
        if simulated.returncode or "chromium" not in names:
            spoken = "; ".join(first_complaint(done.stderr) for done in (updated, simulated) if done.stderr.strip())
            raise ChromiumUnavailable(f"no Chromium on PATH, and apt offers none to unpack ({spoken}): {REMEDY}")
        return names

    def _command(self, *arguments: str) -> list[str]:
        return ["apt-get", "-q", "-c", str(self._work / "apt.conf"), *arguments]


def _checked(command: Sequence[str], work: Path) -> str:
    done = _tool(command, work)
    if done.returncode:
        spoken = first_complaint(done.stderr)
        raise ChromiumUnavailable(f"no Chromium on PATH, and {command[0]} failed to fetch it ({spoken}): {REMEDY}")
    return done.stdout


def _tool(command: Sequence[str], work: Path) -> subprocess.CompletedProcess[str]:
    # HOME: dpkg complains about a configuration it may not read. LC_ALL: we read what apt says.
    env = {**os.environ, "HOME": str(work), "LC_ALL": "C"}
    try:
        return _run(command, env=env, timeout=APT_TIMEOUT_SECONDS, cwd=work / "archives")
    except subprocess.TimeoutExpired as error:
        slow = f"{command[0]} took longer than {APT_TIMEOUT_SECONDS:.0f} s"
        raise ChromiumUnavailable(f"no Chromium on PATH, and {slow}: {REMEDY}") from error
