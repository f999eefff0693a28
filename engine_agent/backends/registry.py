"""The available backends and how to start them. Standard library only: no engine is loaded before it is used.

A backend is a folder next to this file with an `entry.py`, or another package's entry point in the group
`luminet.backends`. Both name a `BackendEntry`. Ours are found as folders because an editable install knows only the
entry points of the day it was made, and an unpacked checkout knows none. docs/engine.md has an example.
"""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

GROUP = "luminet.backends"
USUAL = "paged"
HERE = Path(__file__).parent


class UnknownBackend(ValueError):
    """The name of no known backend."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not a backend. Use one of: {', '.join(backend_names())}")


class BadBackend(Exception):
    """An entry point that does not name a `BackendEntry`."""


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """The facts about a backend that are known before it is loaded.

    `open(config, say)` starts it and returns an `OpenBackend` with a `tokenizer`, and a short description of its
    kernels. `check(options)` raises an `EngineError` for options that it would ignore. `prepare(config, arguments)`
    runs before anything is opened; it may replace the process.
    """

    open: Callable[[Any, Callable[[str], None]], Awaitable[tuple[Any, str]]]
    check: Callable[[argparse.Namespace], None] = _nothing
    prepare: Callable[[Any, Sequence[str]], None] = _nothing
    demo_options: tuple[str, ...] = ()  # options of its engine in `make up`, in addition to the common ones
    measured_as: tuple[str, str] | None = None  # its quality suite names, on a CPU and on an accelerator; None: its own


@cache
def _found() -> dict[str, EntryPoint]:
    built_in = {
        folder.parent.name: EntryPoint(folder.parent.name, f"{__package__}.{folder.parent.name}.entry:BACKEND", GROUP)
        for folder in sorted(HERE.glob("*/entry.py"))
    }
    # Built-in backends cannot be replaced.
    return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)} | built_in


def backend_names() -> tuple[str, ...]:
    """Return our backends, then those of other packages."""
    return tuple(sorted(_found(), key=lambda name: not (HERE / name / "entry.py").exists()))


@cache
def backend_entry(name: str) -> BackendEntry:
    """Return a backend's entry. Raises UnknownBackend, BadBackend, and errors of its import."""
    if (point := _found().get(name)) is None:
        raise UnknownBackend(name)
    module, _, attribute = point.value.partition(":")
    entry = getattr(import_module(module), attribute, None)
    if not isinstance(entry, BackendEntry):
        raise BadBackend(f"{point.value} of the backend {name} is not a BackendEntry")
    return entry


def measured_as(name: str, *, has_accelerator: bool) -> str:
    """Return a backend's name in the quality suite. One that is not installed here has its own name."""
    names = backend_entry(name).measured_as if name in _found() else None
    return (names or (name, name))[has_accelerator]
