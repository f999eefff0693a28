import json
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from controlplane.stack.config import read_stack_config
from controlplane.stack.leftovers import is_alive
from tests.e2e.guides import disagreements
from tests.e2e.stack import STOP_SECONDS, Stack, django_shell, end, luminet, new_home, readyz, running, start
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PARTS = {"postgres", "redis", "web", "worker", "beat"}


def pids(stack_status: dict[str, dict[str, object]]) -> dict[str, int]:
    return {name: int(str(row["pid"])) for name, row in stack_status.items()}


@pytest.fixture(scope="module")
def life() -> Iterator[Stack]:
    """One home, below a folder that only its owner may enter. What runs from it ends and starts again and again."""
    with new_home(mode=0o700) as home, running(home) as stack:
        yield stack


@pytest.fixture
def stack(life: Stack) -> Stack:
    """It runs, whatever the test before has done to it."""
    if life.process.poll() is not None:
        life.start_again()
    return life


def test_it_comes_up_and_says_where_to_go(stack: Stack) -> None:
    home = stack.home
    assert "Luminet is ready after" in stack.said
    assert stack.web in stack.said
    assert readyz(stack.web)["pulse_age_seconds"] < 10
    for part in ("web", "worker", "beat", "database", "broker"):
        assert luminet("health", part, home=home).stdout == f"{part} answers\n"
    status = {row["name"]: row for row in json.loads(luminet("stack", "status", "--json", home=home).stdout)}
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that PostgreSQL's user cannot enter")
def test_below_a_private_folder_the_data_lies_in_a_place_of_its_own(stack: Stack) -> None:
    assert (private_place(stack) / "postgres" / "PG_VERSION").exists()
    assert not (stack.home / "postgres").exists()
    assert psutil.Process(stack.status()["postgres"]["pid"]).username() == "nobody"


def private_place(stack: Stack) -> Path:
    return read_stack_config({"LUMINET_HOME": str(stack.home)}).private_place


def test_only_one_runs_at_a_time(stack: Stack) -> None:
    second = start(stack.home, free_port())
    assert second.process.wait(30) != 0
    wait_until(lambda: "Luminet already runs from here" in second.said, "told so")
    second.close()


def test_the_guide_to_the_api_can_be_followed_word_for_word(stack: Stack, tmp_path: Path) -> None:
    """Here, because what it shows of a purge is what a control plane without agents answers: nobody has to prove it."""
    assert disagreements("api.md", stack, tmp_path) == []


def test_every_part_that_is_killed_comes_back_and_the_whole_works_again(stack: Stack) -> None:
    for name in ("worker", "beat", "redis", "postgres", "web"):
        before = stack.status()[name]["pid"]
        os.kill(before, signal.SIGKILL)
        wait_until(
            lambda name=name, before=before: stack.status().get(name, {}).get("pid") not in (None, before),  # type: ignore[misc]
            f"{name} started again:\n{stack.said[-3000:]}",
        )
        wait_until(lambda: {row["state"] for row in stack.status().values()} == {"ready"}, f"ready after {name}")
        wait_until(lambda: (readyz(stack.web).get("pulse_age_seconds") or 99) < 4, f"a pulse after killing {name}")
        assert f"{name:<9} ended with signal SIGKILL; starting again" in stack.said


def test_ctrl_c_ends_it_and_a_second_start_finds_its_data_but_no_password_its_owner_changed(stack: Stack) -> None:
    before, first = pids(stack.status()), stack.demo["orgs"]
    change_the_operators_password(stack)
    began = time.monotonic()
    os.killpg(stack.process.pid, signal.SIGINT)  # what a terminal does: make and everything below it
    stack.process.wait(STOP_SECONDS)
    wait_until(lambda: "stopped in" in stack.said, f"stopped:\n{stack.said}")
    assert time.monotonic() - began < STOP_SECONDS
    assert not any(is_alive(pid) for pid in before.values())
    assert json.loads(luminet("stack", "status", "--json", home=stack.home).stdout) == []
    stack.start_again()
    assert stack.demo["operator"]["password"] is None
    assert "password    the one you chose" in stack.said
    assert stack.demo["orgs"] == first


def change_the_operators_password(stack: Stack) -> None:
    find = "from tenants.models import User; user = User.objects.get(is_operator=True)"
    django_shell(stack.home, f"{find}; user.set_password('my own'); user.save()")


def kill_the_supervisor(stack: Stack) -> list[int]:
    """What it leaves running."""
    orphans = pids(stack.status())
    supervisor = psutil.Process(orphans["web"]).parent()
    assert supervisor is not None
    supervisor.kill()
    stack.process.wait(STOP_SECONDS)
    assert all(is_alive(pid) for pid in orphans.values())
    return list(orphans.values())


def test_what_a_kill_left_running_is_ended_by_the_next_start_and_by_down(stack: Stack) -> None:
    orphans = kill_the_supervisor(stack)
    stack.start_again()
    assert "ended postgres, left over from a run that was killed" in stack.said
    assert not any(is_alive(pid) for pid in orphans)
    orphans = kill_the_supervisor(stack)
    assert "Ended what was left over" in luminet("stack", "down", home=stack.home).stdout
    assert not any(is_alive(pid) for pid in orphans)


def test_clean_stops_it_and_deletes_what_it_says(stack: Stack) -> None:
    home = stack.home
    end_of_clean = luminet("stack", "clean", home=home)  # nobody answers its question
    assert "Nothing was deleted" in end_of_clean.stdout
    assert home.exists()
    cleaned = luminet("stack", "clean", "--yes", home=home)
    assert cleaned.returncode == 0, cleaned.stderr
    assert not home.exists()
    assert not private_place(stack).exists()
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
