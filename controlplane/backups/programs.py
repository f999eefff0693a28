"""Run PostgreSQL's own programs with a password that no process list shows."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from controlplane.backups.errors import BackupProblem

ADVICE = (
    "install PostgreSQL's client programs, no older than the server (Debian: postgresql-client), or the extra "
    "`embedded`, which has those of version 18"
)


def program(name: str) -> Path:
    """Return the path of a PostgreSQL program: the wheel's, which is new enough for any server, else the machine's."""
    from controlplane.stack.errors import StackError
    from controlplane.stack.postgres import wheel_binaries

    try:
        return wheel_binaries() / "bin" / name
    except StackError:
        path = shutil.which(name)
    if path is None:
        raise BackupProblem(f"{name} is not on this machine: {ADVICE}")
    return Path(path)


def program_run(name: str, url: str, options: Sequence[str], *, output: "IO[bytes] | None" = None) -> None:
    """Run a program against this database. Raise BackupProblem with the last line of its error output."""
    parameters: dict[str, Any] = dict(conninfo_to_dict(url))
    password = str(parameters.pop("password", "") or "")
    command = [str(program(name)), f"--dbname={make_conninfo(**parameters)}", "--no-password", *options]
    completed = subprocess.run(
        command,
        env={**os.environ, "PGPASSWORD": password},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if completed.returncode:
        error_lines = [line for line in completed.stderr.splitlines() if line.strip()] or ["it does not say why"]
        raise BackupProblem(f"{name} ended with {completed.returncode}: {error_lines[-1]}")
