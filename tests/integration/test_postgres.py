import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from controlplane.stack.config import StackConfig, folders_make, read_stack_config, unprivileged_owner
from controlplane.stack.credentials import credentials_ensure
from controlplane.stack.errors import StackError
from controlplane.stack.postgres import Cluster, cluster_prepare, copy_binaries, identity, wheel_binaries
from controlplane.stack.services import database_url
from tests.servers.embedded import postgres_running, temporary_home
from tests.support.ports import free_port


def prepare(config: StackConfig) -> Cluster:
    return cluster_prepare(config, owner=unprivileged_owner(), passwords=credentials_ensure(config.secrets))


def test_the_copied_binaries_run_where_the_wheel_cannot_be_reached() -> None:
    with temporary_home() as config:
        copy = copy_binaries(wheel_binaries(), config.home.parent / "place")
        for program in ("initdb", "postgres"):
            command = [str(copy / "bin" / program), "--version"]
            done = subprocess.run(
                command, cwd="/", capture_output=True, text=True, check=False, **identity(unprivileged_owner())
            )
            assert "18." in done.stdout, done.stderr
        assert copy_binaries(wheel_binaries(), config.home.parent / "place") == copy


def test_the_cluster_takes_nobody_without_the_password_and_its_role_is_no_superuser() -> None:
    with temporary_home() as config:
        port = free_port()
        password = credentials_ensure(config.secrets)["postgres_password"]
        with postgres_running(config, port=port, url=database_url(port, password)):
            with psycopg.connect(database_url(port, password)) as connection:
                row = connection.execute("select rolsuper, rolcreatedb from pg_roles where rolname = current_user")
                assert row.fetchone() == (False, True)
                connection.execute("create table t (x int)")
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(database_url(port, "wrong"))
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")


def test_a_start_that_was_interrupted_begins_anew() -> None:
    with temporary_home() as config:
        half_made = config.home / ".postgres-interrupted"
        (half_made / "data").mkdir(parents=True)
        (config.home / "postgres").mkdir()  # without PG_VERSION it is no cluster
        cluster = prepare(config)
        assert (cluster.data / "PG_VERSION").exists()
        assert not half_made.exists()


def test_a_cluster_of_another_version_is_left_alone_with_a_sentence() -> None:
    with temporary_home() as config:
        cluster = prepare(config)
        (cluster.data / "PG_VERSION").write_text("17\n")
        with pytest.raises(StackError, match=r"made by PostgreSQL 17; this is 18"):
            prepare(config)
        assert (cluster.data / "base").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_cluster_of_another_user_is_left_alone_with_a_sentence() -> None:
    with temporary_home() as config:
        cluster = prepare(config)
        os.chown(cluster.data, 0, 0)
        with pytest.raises(StackError, match="belongs to root and PostgreSQL would run as nobody"):
            prepare(config)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that PostgreSQL's user cannot enter")
def test_a_moved_home_takes_its_data_along_and_a_copied_one_leaves_it(tmp_path: Path) -> None:
    """As root below a private folder the data lies elsewhere, in a place named after the home's path."""
    homes = {name: read_stack_config({"LUMINET_HOME": str(tmp_path / name)}) for name in ("first", "moved", "copied")}
    try:
        folders_make(homes["first"])
        made = prepare(homes["first"])
        (made.data / "mark").touch()
        homes["first"].home.rename(homes["moved"].home)
        moved = prepare(homes["moved"])
        assert (moved.data / "mark").exists()
        assert not made.data.exists()
        shutil.copytree(homes["moved"].home, homes["copied"].home)
        assert not (prepare(homes["copied"]).data / "mark").exists()
        assert (moved.data / "mark").exists()
    finally:
        for config in homes.values():
            shutil.rmtree(config.private_place, ignore_errors=True)


def test_without_the_wheel_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StackError, match="set LUMINET_DATABASE_URL"):
        wheel_binaries()
