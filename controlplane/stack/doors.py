"""The commands `luminet stack …`: each reads the settings, calls one function and returns an exit status."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.settings.reader import MalformedSettings
from controlplane.stack.bootstrap import remove
from controlplane.stack.config import StackConfig, is_ours, read_stack_config
from controlplane.stack.errors import StackError
from controlplane.stack.leftovers import end_leftovers, holder, read_status
from controlplane.stack.terminal import Terminal
from controlplane.stack.up import stack_up

DOWN_SECONDS = 15.0
STATUS_FIELDS = ("name", "pid", "state", "since", "port")


def up() -> int:
    try:
        stack_up(read_stack_config(os.environ), os.environ, Terminal())
    except MalformedSettings as error:
        print(error, file=sys.stderr)
        return 2
    except StackError as error:
        print(f"luminet: {error}", file=sys.stderr)
        if error.is_puzzling:
            print(
                "luminet: `.venv/bin/luminet doctor` says what is well here, what is not, and what to do",
                file=sys.stderr,
            )
        return 1
    return 0


def status(*, as_json: bool) -> int:
    config = _config()
    rows = read_status(config.status_file) if holder(config.lock_file) else []
    rows = [{field: row[field] for field in STATUS_FIELDS} for row in rows]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print("\n".join(table(rows, now=datetime.now(UTC))))
    else:
        print("Nothing runs from here. `make up` starts it.")
    return 0


def environment_of_running_stack() -> dict[str, str]:
    """Return the environment that the running stack's parts were started with; empty if no stack runs from here."""
    config = _config()
    if holder(config.lock_file) is None:
        return {}
    environment: dict[str, str] = json.loads(config.environment_file.read_text(encoding="utf-8"))
    return environment


def table(rows: list[dict[str, Any]], *, now: datetime) -> list[str]:
    """Return the rows as a table for people, with the time in each state instead of its start."""
    lines = [f"{'PART':<16} {'STATE':<11} {'FOR':>9} {'PID':>8} {'PORT':>6}"]
    for row in rows:
        age = _duration(int((now - datetime.fromisoformat(row["since"])).total_seconds()))
        lines.append(f"{row['name']:<16} {row['state']:<11} {age:>9} {row['pid'] or '–':>8} {row['port'] or '–':>6}")
    return lines


def down() -> int:
    config = _config()
    pid = holder(config.lock_file)
    if pid is None:
        ended = end_leftovers(config.status_file)
        print(f"Ended what was left over: {', '.join(ended)}." if ended else "Nothing runs from here.")
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    began = time.monotonic()
    while holder(config.lock_file) == pid:
        if time.monotonic() - began > DOWN_SECONDS:
            print(f"luminet: process {pid} has not stopped within {DOWN_SECONDS:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.1)
    print(f"Stopped in {time.monotonic() - began:.1f} s.")
    return 0


def clean(*, asks: bool) -> int:
    """Delete our files in the home and the private place. Confirm first, because the data is lost."""
    config = _config()
    folders = [folder for folder in (config.home, config.private_place) if folder.exists()]
    if not folders or not any(_deletable(config)):
        print("There is nothing to delete.")
        return 0
    names = " and ".join(str(folder) for folder in folders)
    if asks and not _agreed(f"Delete {names}, with the database, all secrets and logs? Type yes: "):
        print("Nothing was deleted.")
        return 1
    if down() != 0:
        return 1
    for entry in [*_deletable(config)]:
        remove(entry)
    for folder in (config.home, config.private_place.parent):
        with contextlib.suppress(OSError):
            folder.rmdir()  # fails if other files are left in it
    print(f"Deleted {names}.")
    return 0


def _deletable(config: StackConfig) -> Iterator[Path]:
    if config.home.is_dir():
        yield from (entry for entry in config.home.iterdir() if is_ours(entry))
    if config.private_place.exists():
        yield config.private_place


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() == "yes"
    except EOFError:
        print()
        return False


def _config() -> StackConfig:
    try:
        return read_stack_config(os.environ)
    except MalformedSettings as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _duration(seconds: int) -> str:
    if seconds < 120:
        return f"{max(0, seconds)} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"
