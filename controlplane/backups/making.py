"""Make a backup: one consistent moment of the whole database in PostgreSQL's own format, while everything runs."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from controlplane.backups.errors import BackupProblem
from controlplane.backups.programs import program_run

# These let nobody in after a restore, so backups need not contain their data.
LEFT_OUT = ("django_session", "tenants_onetimelink", "tenants_idempotentrequest", "tenants_signinattempt")
OPTIONS = (
    "--format=custom",
    "--no-owner",
    "--no-privileges",
    *(f"--exclude-table-data={name}" for name in LEFT_OUT),
)
STANDARD_OUTPUT = "-"


@dataclass(frozen=True, slots=True)
class Made:
    file: str
    bytes: int | None  # None: written to standard output
    seconds: float


def backup_make(url: str, file: str) -> Made:
    """Write the backup completely or not at all, readable by its owner only. Raise BackupProblem if it fails."""
    began = time.monotonic()
    if file == STANDARD_OUTPUT:
        program_run("pg_dump", url, OPTIONS, output=sys.stdout.buffer)
        return Made(file, None, time.monotonic() - began)
    target = Path(file)
    if target.exists():
        raise BackupProblem(f"{file} is there already: no backup is written over another")
    part = target.with_name(f".{target.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            program_run("pg_dump", url, OPTIONS, output=output)
            output.flush()
            os.fsync(output.fileno())
        part.rename(target)
    except OSError as problem:
        raise BackupProblem(f"{file}: {problem.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return Made(file, target.stat().st_size, time.monotonic() - began)
