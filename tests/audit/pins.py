"""What is pinned: packages of Python, by file, and the vendored libraries of pages."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controlplane.settings.env import CHECKOUT

Ecosystem = Literal["PyPI", "npm"]
FILES = ("constraints.txt", "constraints-vllm.txt", "constraints-litellm.txt", "constraints-clients.txt")
NODE_LOCK = Path("tests/clients/package-lock.json")
VENDOR = CHECKOUT / "controlplane" / "dashboard" / "static" / "vendor"
NPM_NAMES = {"htmx": "htmx.org", "uplot": "uplot"}  # what a vendored file's first word is called there
_PIN = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^\s;#]+)")
_VENDORED = re.compile(r"([a-z]+)-([0-9.]+)\.min\.js")


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    ecosystem: Ecosystem
    name: str
    version: str


def pins_all(folder: Path = CHECKOUT, vendor: Path = VENDOR) -> list[Pin]:
    """Each once, whichever files it is in."""
    return sorted({*_python(folder), *_node(folder), *_vendored(vendor)})


def _python(folder: Path) -> Iterator[Pin]:
    for file in FILES:
        lines = (folder / file).read_text(encoding="utf-8").splitlines() if (folder / file).exists() else ()
        for line in lines:
            if match := _PIN.match(line):
                yield Pin("PyPI", match[1], match[2])


def _node(folder: Path) -> Iterator[Pin]:
    if (folder / NODE_LOCK).exists():
        packages = json.loads((folder / NODE_LOCK).read_text(encoding="utf-8"))["packages"]
        for place, package in packages.items():
            if name := place.rpartition("node_modules/")[2]:
                yield Pin("npm", name, package["version"])


def _vendored(folder: Path) -> Iterator[Pin]:
    for file in folder.glob("*.js"):
        match = _VENDORED.fullmatch(file.name)
        if match is None:
            raise ValueError(f"{file.name} does not say its version: name it NAME-VERSION.min.js")
        yield Pin("npm", NPM_NAMES[match[1]], match[2])
