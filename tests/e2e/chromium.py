"""Find a real Chromium for the browser tests, or unpack Debian's into a cache without being root.

Playwright's own browsers are not used. Nothing here opens a page: the caller passes `executable`, `env` and
`LAUNCH_ARGS` to `playwright.chromium.launch`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

from tests.servers.debian import Package, cached_or_fetched, run_quietly

VARIABLE: Final = "LUMINET_CHROMIUM"
COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES: Final = ("chromium", "fonts-dejavu-core")
REMEDY: Final = f"install chromium (Debian: apt-get install chromium) or set {VARIABLE}=/path"
LEAST_FREE_BYTES: Final = 700_000_000  # what 25 missing packages take; a bare machine lacks 176
VERSION_TIMEOUT_SECONDS: Final = 20.0

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


PACKAGE: Final = Package("Chromium", PACKAGES, LEAST_FREE_BYTES, REMEDY, ChromiumUnavailable)


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
        cache = (cache_dir or default_cache_dir()).absolute()
        return _unpacked_chromium(cached_or_fetched(PACKAGE, cache, works=_works, proven=_proven_version))
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
        done = run_quietly([str(executable), "--version"], env=env, timeout=VERSION_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if is_browser_version(line)]
    return lines[0] if lines and done.returncode == 0 else None


# The unpacked copy


def _works(copy: Path) -> bool:
    chromium = _unpacked_chromium(copy)
    return _version(chromium.executable, chromium.env) is not None


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


def _proven_version(copy: Path) -> str:
    chromium = _unpacked_chromium(copy)
    if version := _version(chromium.executable, chromium.env):
        return version
    ldd = run_quietly(["ldd", str(chromium.executable)], env=chromium.env, timeout=VERSION_TIMEOUT_SECONDS)
    missing = ", ".join(missing_libraries(ldd.stdout)) or "nothing that ldd can name"
    raise ChromiumUnavailable(f"Debian's Chromium was unpacked but does not start (missing: {missing}): {REMEDY}")
