"""That nothing secret and nothing customers said is in what a stack wrote: looked for by its value, and by its shape.

Every stack of these tests is looked through when it ends: logs of every part, PostgreSQL's and Redis' own, what the
supervisor said, engines' journals, and the command lines of all of its processes, which everybody there can read.
"""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.e2e.stack import CHECKOUT, Stack, environment

SHORTEST = 12  # characters of a value that is looked for: shorter ones are somewhere by chance
SHOWN = 6  # of a value, in the words of a failure
# What is a secret whoever made it, wherever it is.
SHAPES: Mapping[str, re.Pattern[str]] = {
    "a key or a token": re.compile(r"\b(?:lmk|lmo|ljt|lat)_[0-9A-Za-z]{49}\b"),
    "a one-time link": re.compile(r"/(?:invitation|reset)/[\w-]{43}\b"),
    "a cookie": re.compile(r"luminet_(?:session|csrf|device_\w+)=\w{20}"),
    "a bearer token": re.compile(r"[Bb]earer\s+[\w.-]{20}"),
    "a URL with a password": re.compile(r"\b(?:rediss?|postgres(?:ql)?)://[^\s/@:]*:[^\s/@]{8,}@"),
    "something signed": re.compile(r"\bv1\.[\w-]{60,}\.[\w-]{43}"),
    "a password's hash": re.compile(r"\b(?:scrypt|pbkdf2_sha256)\$\d"),
}
# Of the tests' own prompts, wherever they are asked: a customer's words are in no log either.
WORDS = (
    "What does the module json do",
    "Answer in one short sentence, name the module",
    "is visitor",
    "four plain words",
)
# `make up` shows these to whoever starts it, on its own terminal: docs/tour.md.
SHOWN_AT_START = "password of the demo"
LOOKED_FOR = ("secrets/master_key", "secrets/pepper", "token of the demo", "api_key of the demo", "cache key")
_remembered: dict[str, dict[str, str]] = {}


def remember(stack: Stack, what: str, value: str) -> str:
    """Something secret that a test has just seen or typed: it is looked for when the stack ends."""
    _remembered.setdefault(str(stack.home), {})[f"{what} {len(value)}.{value[:SHOWN]}…"] = value
    return value


def leaks(stack: Stack) -> list[str]:
    """What stands where it must not, each named by where, by what it is, and by how it begins."""
    known = {**_files(stack.home), **_demo(stack), **_remembered.get(str(stack.home), {}), **_stored(stack)}
    written = {**dict(_logs(stack.home)), **dict(_command_lines(stack)), "what the supervisor said": stack.said}
    assert len(written) > 5, "there are no logs to look through"
    missing = [kind for kind in LOOKED_FOR if not any(kind in what for what in known)]
    assert missing == [], "of what is always there nothing is looked for"
    return [found for where, text in written.items() for found in _found(where, text, known)]


def _found(where: str, text: str, known: Mapping[str, str]) -> Iterator[str]:
    for what, value in known.items():
        is_shown = where == "what the supervisor said" and what.startswith(SHOWN_AT_START)
        if not is_shown and any(spelled in text for spelled in _spelled(value)):
            yield f"{where}: {what}"
    for what, shape in SHAPES.items():
        if match := shape.search(text):
            yield f"{where}: {what}, {match[0][: SHOWN + 8]}…"
    yield from (f"{where}: words of a prompt, {words!r}" for words in WORDS if words in text)


def _spelled(value: str) -> Iterator[str]:
    """As it is, and, where it is bytes in base64, as people print bytes."""
    if len(value) < SHORTEST:
        return
    yield value
    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError:
        return
    if len(raw) >= SHORTEST:
        yield raw.hex()
        yield repr(raw)[2:-1]


# What is written


def _logs(home: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(home.rglob("*.log*")):
        if path.is_file():
            yield str(path.relative_to(home)), path.read_text(errors="replace")
    for path in sorted(home.rglob("last-words*")):
        yield str(path.relative_to(home)), path.read_text(errors="replace")


def _command_lines(stack: Stack) -> Iterator[tuple[str, str]]:
    roots = [row["pid"] for row in stack.status().values() if row.get("pid")]
    for pid in roots:
        try:
            every = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            yield f"ps {pid}", "\n".join(" ".join(one.cmdline()) for one in every)
        except psutil.NoSuchProcess:
            continue


# What is secret


def _files(home: Path) -> dict[str, str]:
    found = {f"secrets/{path.name}": path.read_text().strip() for path in (home / "secrets").iterdir()}
    for path in home.rglob("credentials"):
        if path.is_file():
            found |= _credentials(path)
    for name in ("api-key", "identity-secret"):
        for path in home.rglob(name):
            found[str(path.relative_to(home))] = path.read_bytes().decode("latin-1").strip()
    return found


def _credentials(path: Path) -> dict[str, str]:
    told = json.loads(path.read_text())
    named = {f"{path.parent.name}'s {name} key": value for name, value in told["keys"].items() if name != "verifying"}
    named[f"{path.parent.name}'s token"] = told["token"]
    named[f"{path.parent.name}'s broker password"] = urlsplit(told["broker"]["url"]).password or ""
    return {name: value for name, value in named.items() if value}


def _demo(stack: Stack) -> dict[str, str]:
    found: dict[str, str] = {}

    def collect(where: str, told: Any) -> None:
        for name, value in told.items() if isinstance(told, dict) else enumerate(told):
            if isinstance(value, dict | list):
                collect(f"{where}.{name}", value)
            elif name in ("password", "token", "api_key") and value:
                found[f"{'password' if name == 'password' else name} of the demo{where}"] = str(value)

    collect("", stack.demo)
    return found


_READ = """
import base64, json
from controlplane.alerts.models import AlertRule
from controlplane.alerts.services import webhook_secret
from tenants.models import NamespaceKey
from tenants.services.namespace_keys import key_open
found = {}
for one in NamespaceKey.objects.exclude(sealed=None):
    key = key_open(one.namespace_id, one.epoch, one.sealed)
    found[f"cache key of namespace {one.namespace_id}"] = base64.b64encode(key).decode()
for one in AlertRule.objects.exclude(sealed_secret=None):
    found[f"webhook secret of rule {one.pk}"] = webhook_secret(one)
print(json.dumps(found))
"""


def _stored(stack: Stack) -> dict[str, str]:
    """What the database holds encrypted. Sessions are hashed there: tests remember the cookies they get."""
    settings = json.loads((stack.home / "run" / "environment.json").read_text())
    env = environment(stack.home, 8000, **settings)
    command = [sys.executable, "manage.py", "shell", "-v0", "-c", _READ]
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found
