"""HAProxy: $LUMINET_HAPROXY, PATH's, or out of Debian's package, unpacked into a cache."""

import os
import pwd
import re
import shutil
from pathlib import Path
from typing import Final

from tests.debian import Package, cached_or_fetched, run_quietly

VARIABLE: Final = "LUMINET_HAPROXY"
REMEDY: Final = f"install haproxy (Debian: apt-get install haproxy) or set {VARIABLE}=/path"
INSIDE: Final = "root/usr/sbin/haproxy"
USER: Final = re.compile(r"^ *(?:user|group) haproxy\b.*\n", re.MULTILINE)


class HaproxyUnavailable(RuntimeError):
    """None here. The message is one sentence: what was tried, and what to do."""


PACKAGE: Final = Package("haproxy", ("haproxy",), 20_000_000, REMEDY, HaproxyUnavailable)


def haproxy() -> tuple[Path, dict[str, str]]:
    """The program, and the environment that it needs besides."""
    places = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    if found := os.environ.get(VARIABLE) or shutil.which("haproxy", path=places):
        return Path(found), {}
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(base, "luminet", "haproxy").expanduser().absolute()
    copy = cached_or_fetched(PACKAGE, cache, works=_works, proven=_proven)
    return copy / INSIDE, {"LD_LIBRARY_PATH": _libraries(copy)}


def configuration_for_here(text: str) -> str:
    """Without the user that Debian's package makes, where this machine has none or may not change to it."""
    return text if os.geteuid() == 0 and _has_user() else USER.sub("", text)


def _has_user() -> bool:
    try:
        pwd.getpwnam("haproxy")
    except KeyError:
        return False
    return True


def _libraries(copy: Path) -> str:
    return ":".join(sorted({str(path.parent) for path in (copy / "root").rglob("*.so*")}))


def _version(copy: Path) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": _libraries(copy)}
    done = run_quietly([str(copy / INSIDE), "-v"], env=environment, timeout=60)
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def _works(copy: Path) -> bool:
    try:
        return bool(_version(copy))
    except OSError:
        return False


def _proven(copy: Path) -> str:
    if not _works(copy):
        raise HaproxyUnavailable(f"Debian's haproxy was unpacked but does not start: {REMEDY}")
    return _version(copy)
