import fcntl
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import psutil
import pytest

from controlplane.common.health import loopback_address
from controlplane.stack.child import Child, Service
from controlplane.stack.config import folders_make, is_reachable_by_others, read_stack_config
from controlplane.stack.credentials import APPLICATION_SECRETS, credentials_ensure, environment_lines
from controlplane.stack.doors import clean, table
from controlplane.stack.errors import AlreadyRunning, StackError
from controlplane.stack.leftovers import end_leftovers, holder, is_alive, sole_stack
from controlplane.stack.ports import port_is_free
from controlplane.stack.terminal import Terminal
from engine_agent.contracts.files import write_private
from tests.support.ports import free_port

SLEEP = (sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)")


def test_a_folder_with_other_peoples_things_is_no_home_and_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    mode = tmp_path.stat().st_mode
    with pytest.raises(StackError, match=r"holds other things \(thesis.txt\)"):
        folders_make(read_stack_config({"LUMINET_HOME": str(tmp_path)}))
    assert tmp_path.stat().st_mode == mode


def test_clean_deletes_what_is_ours_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    folders_make(read_stack_config({"LUMINET_HOME": str(home)}))
    (home / "thesis.txt").write_text("put here later")
    monkeypatch.setenv("LUMINET_HOME", str(home))
    assert clean(asks=False) == 0
    assert [entry.name for entry in home.iterdir()] == ["thesis.txt"]


def test_a_file_somebody_put_beside_ours_does_not_keep_a_home_from_starting(tmp_path: Path) -> None:
    config = read_stack_config({"LUMINET_HOME": str(tmp_path / "home")})
    folders_make(config)
    (config.home / "notes.txt").touch()
    folders_make(config)


def test_asking_for_the_status_does_not_look_like_running(tmp_path: Path) -> None:
    """Both take the lock for an instant; two who ask at once must not see each other as a stack."""
    lock = tmp_path / "lock"
    lock.touch()
    with lock.open("a+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert holder(lock) is None


def test_only_one_stack_runs_from_one_home(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert holder(lock) is None
    with sole_stack(lock):
        assert holder(lock) == os.getpid()
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"), sole_stack(lock):
            pass
    assert holder(lock) is None


def leftover(status_file: Path, *, born_later: float = 0) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(SLEEP, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    born = psutil.Process(process.pid).create_time() + born_later
    write_private(status_file, json.dumps([{"name": "web", "pid": process.pid, "born": born}]))
    return process


def test_what_a_killed_stack_left_behind_is_ended(tmp_path: Path) -> None:
    process = leftover(tmp_path / "stack.json")
    assert end_leftovers(tmp_path / "stack.json") == ["web"]
    assert not is_alive(process.pid)
    process.wait(5)
    assert not (tmp_path / "stack.json").exists()


def test_a_process_that_only_has_the_number_of_a_leftover_is_spared(tmp_path: Path) -> None:
    process = leftover(tmp_path / "stack.json", born_later=-1000)
    try:
        assert end_leftovers(tmp_path / "stack.json") == []
        assert is_alive(process.pid)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[1]", '[{"name": "web", "pid": "x"}]', '[{"name": "web", "pid": 99999999}]']
)
def test_a_spoiled_status_file_is_survived(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    assert end_leftovers(tmp_path / "stack.json") == []


def test_secrets_are_made_once_and_readable_by_their_owner_alone(tmp_path: Path) -> None:
    first = credentials_ensure(tmp_path)
    assert credentials_ensure(tmp_path) == first
    assert set(APPLICATION_SECRETS) < set(first)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_two_sets_of_production_secrets_share_nothing() -> None:
    values = [dict(line.split("=", 1) for line in environment_lines().splitlines()) for _ in range(2)]
    assert values[0].keys() == values[1].keys()
    assert not set(values[0].values()) & set(values[1].values())


def test_every_production_secret_is_printed_once() -> None:
    names = [line.partition("=")[0] for line in environment_lines().splitlines()]
    assert sorted(set(names)) == sorted(names)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    write_private(file, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_private(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_only_its_owner_may_enter_is_not_reachable_by_others(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert not is_reachable_by_others(private / "home" / "postgres")


def test_two_homes_have_two_private_places() -> None:
    places = {read_stack_config({"LUMINET_HOME": home}).private_place for home in ("/a", "/b")}
    assert len(places) == 2


def test_a_port_somebody_listens_on_is_not_free() -> None:
    import socket

    port = free_port()
    assert port_is_free("127.0.0.1", port)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert not port_is_free("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")],
)
def test_a_server_on_every_address_is_reached_on_loopback(host: str, address: str) -> None:
    assert loopback_address(host, 1) == address


def test_the_status_table_says_how_long() -> None:
    now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    row = {"name": "web", "state": "ready", "pid": 7, "port": None, "since": (now - timedelta(minutes=5)).isoformat()}
    assert table([row], now=now)[1].split() == ["web", "ready", "5", "min", "7", "–"]


class _Tty(StringIO):
    def isatty(self) -> bool:
        return True


class _Gone(StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_was_closed_stops_nothing() -> None:
    Terminal(_Gone(), {}).say("web", "hello")


def test_colour_is_for_people_who_want_it() -> None:
    for environ, colourful in (({}, True), ({"NO_COLOR": "1"}, False)):
        stream = _Tty()
        Terminal(stream, environ).say("web", "hello")
        assert ("\x1b[36m" in stream.getvalue()) is colourful
    plain = StringIO()
    Terminal(plain, {}).say("web", "hello")
    assert plain.getvalue() == "web       hello\n"


def test_a_child_says_where_it_is_before_it_has_started(tmp_path: Path) -> None:
    child = Child(Service("web", SLEEP), logs=tmp_path, say=lambda *_: None, changed=lambda: None)
    child.stop()
    assert (child.pid, child.state) == (None, "stopped")
