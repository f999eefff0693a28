"""Luminet's code of the commit that upgrades are tested from: out of git, beside this checkout, with its packages.

A newcomer's clone may not have it (`--depth 1`), nor an unpacked archive: then `NoHistory` says which of these it is.
Anything else that is wrong with it is a failure.
"""

import io
import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from controlplane.settings.env import CHECKOUT
from tests.fleet.fleets import Part, environment_for

UPGRADES_FROM = CHECKOUT / "deploy" / "upgrades-from"
PACKAGES = ("controlplane", "engine_agent", "kernels", "tenants")
WHENCE = (
    "import importlib, json, sys; print(json.dumps([importlib.import_module(one).__file__ for one in sys.argv[1:]]))"
)


class NoHistory(Exception):
    """This tree cannot show what it came from; the text says why."""


@dataclass(frozen=True, slots=True)
class Code:
    tree: Path
    name: str

    @property
    def is_this(self) -> bool:
        return self.tree == CHECKOUT


NEW = Code(CHECKOUT, "new")


def commit_before() -> str:
    """The one that the file names."""
    lines = UPGRADES_FROM.read_text(encoding="ascii").splitlines()
    (commit,) = (line for line in lines if line and not line.startswith("#"))
    return commit


def history_ensure(commit: str, checkout: Path = CHECKOUT) -> None:
    """Raises NoHistory where git, the history or, because it was cut off, the commit is not there."""
    try:
        top = git(checkout, "rev-parse", "--show-toplevel").decode().strip()
    except FileNotFoundError:
        raise NoHistory("there is no git on this machine") from None
    except subprocess.CalledProcessError:
        top = ""
    if not top or Path(top).resolve() != checkout.resolve():
        raise NoHistory("this tree has no git history: it is no clone")
    if not _has(checkout, commit) and git(checkout, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise NoHistory(f"this clone is shallow and lacks {commit[:12]}: git fetch --unshallow brings it")


def code_before(folder: Path) -> Code:
    """Unpacked into that folder. Raises NoHistory."""
    commit = commit_before()
    history_ensure(commit)
    packed = git(CHECKOUT, "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    code = Code(folder.resolve(), commit[:12])
    _found_first(code)
    return code


def git(checkout: Path, *arguments: str) -> bytes:
    """Also in a checkout that somebody else owns, as in containers."""
    command = ("git", "-c", "safe.directory=*", "-C", str(checkout), *arguments)
    return subprocess.run(command, capture_output=True, check=True).stdout


def _has(checkout: Path, commit: str) -> bool:
    try:
        git(checkout, "cat-file", "-e", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        return False
    return True


def _found_first(code: Code) -> None:
    """All of it is imported from there and nothing from the checkout, although that is installed as editable."""
    command = (sys.executable, "-c", WHENCE, *PACKAGES)
    said = subprocess.run(command, cwd=code.tree, env=environment_for(code.tree), capture_output=True, check=True)
    found = [Path(one) for one in json.loads(said.stdout)]
    assert [one for one in found if not one.is_relative_to(code.tree)] == [], found


def runs(part: Part, code: Code) -> None:
    """That process, and whatever it has started, was told to find this code first, and runs in its tree."""
    process = psutil.Process(part.pid)
    for one in (process, *process.children(recursive=True)):
        whence = one.environ().get("PYTHONPATH")
        assert (Path(one.cwd()), whence) == (code.tree, None if code.is_this else str(code.tree)), one.cmdline()
