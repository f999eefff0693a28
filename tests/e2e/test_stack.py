import json
import os
import signal
import socket
import stat
import time
from pathlib import Path

import psutil
import pytest

from controlplane.stack.leftovers import is_alive
from tests.e2e.stack import STOP_SECONDS, Stack, django_shell, end, luminet, readyz, running, start, wait_until
from tests.ports import free_port

PARTS = {"postgres", "redis", "web", "worker", "beat"}


def pids(stack_status: dict[str, dict[str, object]]) -> dict[str, int]:
    return {name: int(str(row["pid"])) for name, row in stack_status.items()}


def test_it_comes_up_says_where_to_go_and_stops_leaving_nothing(home: Path) -> None:
    with running(home) as stack:
        assert "Luminet is ready after" in stack.said
        assert stack.web in stack.said
        assert readyz(stack.web)["pulse_age_seconds"] < 10
        for part in ("web", "worker", "beat", "database", "broker"):
            assert luminet("health", part, home=home).stdout == f"{part} answers\n"
        status = stack.status()
        assert set(status) == PARTS
        assert {row["state"] for row in status.values()} == {"ready"}
        assert status["web"]["port"] == stack.port
        demo = stack.demo
        assert (demo["web"], demo["gateway"]) == (stack.web, None)
        assert demo["operator"]["email"] == "operator@luminet.example"
        assert [org["slug"] for org in demo["orgs"]] == ["acme", "globex", "initech"]
        assert demo["operator"]["password"] in stack.said
        assert demo["orgs"][0]["member"]["password"] in stack.said
        assert demo["operator"]["token"] not in stack.said
        secret_files = [home / "demo.json", *(home / "secrets").iterdir(), *(home / "logs").iterdir()]
        assert {stat.S_IMODE(file.stat().st_mode) for file in secret_files} == {0o600}
        assert stack.stop() < STOP_SECONDS
        wait_until(lambda: "stopped in" in stack.said, "told that it stopped")
    assert not any(is_alive(pid) for pid in pids(status).values())
    assert json.loads(luminet("stack", "status", "--json", home=home).stdout) == []


def test_ctrl_c_ends_it_and_a_second_start_finds_its_data_but_no_password_its_owner_changed(home: Path) -> None:
    with running(home) as stack:
        first = stack.demo["orgs"]
        change_the_operators_password(stack)
        began = time.monotonic()
        os.killpg(stack.process.pid, signal.SIGINT)  # what a terminal does: make and everything below it
        stack.process.wait(STOP_SECONDS)
        wait_until(lambda: "stopped in" in stack.said, f"stopped:\n{stack.said}")
        assert time.monotonic() - began < STOP_SECONDS
    with running(home) as again:
        assert again.demo["operator"]["password"] is None
        assert "password    the one you chose" in again.said
        assert again.demo["orgs"] == first


def change_the_operators_password(stack: Stack) -> None:
    find = "from tenants.models import User; user = User.objects.get(is_operator=True)"
    django_shell(stack.home, f"{find}; user.set_password('my own'); user.save()")


def test_every_part_that_is_killed_comes_back_and_the_whole_works_again(home: Path) -> None:
    with running(home) as stack:
        for name in ("worker", "beat", "redis", "postgres", "web"):
            before = stack.status()[name]["pid"]
            os.kill(before, signal.SIGKILL)
            wait_until(
                lambda name=name, before=before: stack.status().get(name, {}).get("pid") not in (None, before),
                f"{name} started again:\n{stack.said[-3000:]}",
            )
            wait_until(lambda: {row["state"] for row in stack.status().values()} == {"ready"}, f"ready after {name}")
            wait_until(lambda: (readyz(stack.web).get("pulse_age_seconds") or 99) < 4, f"a pulse after killing {name}")
            assert f"{name:<9} ended with signal SIGKILL; starting again" in stack.said


def kill_the_supervisor(stack: Stack) -> list[int]:
    """What it leaves running."""
    orphans = pids(stack.status())
    supervisor = psutil.Process(orphans["web"]).parent()
    assert supervisor is not None
    supervisor.kill()
    stack.process.wait(STOP_SECONDS)
    assert all(is_alive(pid) for pid in orphans.values())
    return list(orphans.values())


def test_what_a_kill_left_running_is_ended_by_the_next_start_and_by_down(home: Path) -> None:
    first = start(home, free_port())
    first.wait_ready()
    orphans = kill_the_supervisor(first)
    second = start(home, first.port)
    second.wait_ready()
    assert "ended postgres, left over from a run that was killed" in second.said
    assert not any(is_alive(pid) for pid in orphans)
    orphans = kill_the_supervisor(second)
    assert "Ended what was left over" in luminet("stack", "down", home=home).stdout
    assert not any(is_alive(pid) for pid in orphans)
    end(first)
    end(second)


def test_only_one_runs_at_a_time_and_clean_deletes_what_it_says(home: Path) -> None:
    with running(home) as stack:
        second = start(home, free_port())
        assert second.process.wait(30) != 0
        wait_until(lambda: "Luminet already runs from here" in second.said, "told so")
        second.close()
        end_of_clean = luminet("stack", "clean", home=home)  # nobody answers its question
        assert "Nothing was deleted" in end_of_clean.stdout
        assert home.exists()
        cleaned = luminet("stack", "clean", "--yes", home=home)
        assert cleaned.returncode == 0, cleaned.stderr
        assert not home.exists()
        assert stack.process.wait(STOP_SECONDS) == 0


def test_a_port_in_use_is_one_sentence_with_the_port_and_the_setting(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stack = start(home, port)
        assert stack.process.wait(30) != 0
    wait_until(lambda: "LUMINET_WEB_PORT" in stack.said, "told so")
    told = [line for line in stack.said.splitlines() if line.startswith("luminet:")]
    said = f"luminet: Port {port} on 127.0.0.1 is in use by another program"
    assert told == [f"{said}: stop that, or set LUMINET_WEB_PORT to a free port."]
    end(stack)


def test_malformed_settings_are_all_named_and_end_with_status_two(home: Path) -> None:
    bad = {"LUMINET_WEB_PORT": "x", "LUMINET_INSTALL_ENGINE": "maybe", "LUMINET_REDIS_URL": "http://x"}
    done = luminet("stack", "up", home=home, **bad)
    assert done.returncode == 2
    assert all(name in done.stderr for name in bad)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("part", ["web", "worker", "beat", "migrate"])
def test_each_part_refuses_to_start_without_its_settings(home: Path, part: str) -> None:
    done = luminet("run", part, home=home)
    assert done.returncode == 2, done.stderr
    assert "LUMINET_MASTER_KEY: is required" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    done = luminet("stack", "up", home=blocker / "home")
    assert done.returncode == 1
    assert "Cannot write to" in done.stderr
    assert "LUMINET_HOME" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that PostgreSQL's user cannot enter")
def test_below_a_private_folder_the_data_lies_in_a_place_of_its_own(tmp_path: Path) -> None:
    from controlplane.stack.config import read_stack_config

    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    place = read_stack_config({"LUMINET_HOME": str(private / "home")}).private_place
    with running(private / "home") as stack:
        assert (place / "postgres" / "PG_VERSION").exists()
        assert not (private / "home" / "postgres").exists()
        owner = psutil.Process(stack.status()["postgres"]["pid"]).username()
        assert owner == "nobody"
    assert luminet("stack", "clean", "--yes", home=private / "home").returncode == 0
    assert not place.exists()
