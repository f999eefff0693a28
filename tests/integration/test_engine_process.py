"""`luminet engine` as a process: how it starts, what it says, and how it ends."""

import itertools
import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from engine_agent.journal.journal import Closed, Journal, Opened
from engine_agent.process.config import CHECKOUT
from tests.engines.processes import DEMO, READY_SECONDS, Engine, engine, state_folder
from tests.support.waiting import wait_until

PROMPT = list(range(100, 180))  # five blocks


@pytest.fixture
def state() -> Iterator[Path]:
    with state_folder() as folder:
        folder.mkdir()
        yield folder


@pytest.fixture(scope="module")
def started() -> Iterator[Engine]:
    with state_folder() as folder, engine("--json-logs", state=folder) as running:
        yield running


def streaming(running: Engine, tokens: int) -> tuple[HTTPConnection, HTTPResponse]:
    """A request whose first token has come."""
    connection = HTTPConnection("127.0.0.1", running.port, timeout=READY_SECONDS)
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    headers = {"authorization": f"Bearer {running.key}", "content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"data: ")
    return connection, answer


def refused_to_start(*arguments: str) -> str:
    """The one line somebody reads who starts it so."""
    command = [sys.executable, "-m", "engine_agent.server.command", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=READY_SECONDS)
    assert done.returncode == 1
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.endswith("…")]
    assert len(said) == 1, done.stderr
    return said[0]


# What it says


@pytest.fixture(scope="module")
def chatty() -> Iterator[Engine]:
    with state_folder() as folder, engine(state=folder) as running:
        wait_until(lambda: any("Ctrl-C" in line for line in running.said))
        yield running


def test_the_command_it_prints_can_be_pasted(chatty: Engine) -> None:
    first = next(number for number, line in enumerate(chatty.said) if line.startswith("curl "))
    command = shlex.split(" ".join(line.rstrip("\\") for line in chatty.said[first : first + 3]))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=READY_SECONDS)
    head, _, body = done.stdout.replace("\r", "").partition("\n\n")
    assert head.startswith("HTTP/1.1 200")
    assert "x-luminet-cache-hit: " in head
    assert json.loads(body)["choices"][0]["message"]["content"]


def test_the_python_it_prints_can_be_pasted(chatty: Engine) -> None:
    first = chatty.said.index("from openai import OpenAI")
    script = "\n".join(chatty.said[first : first + 4])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=READY_SECONDS
    )
    assert done.stdout.strip()


def test_the_same_key_is_good_after_a_restart_and_so_is_the_revision(state: Path) -> None:
    with engine(state=state) as running:
        key = running.key
        revision = running.complete(PROMPT).headers["x-luminet-policy-revision"]
        assert running.stop() == 0
    with engine(state=state) as running:
        assert running.key == key
        assert running.complete(PROMPT).headers["x-luminet-policy-revision"] == revision == "1"


def test_programs_are_told_where_it_is_in_one_line_and_no_secret(started: Engine) -> None:
    assert started.complete(PROMPT).status == 200  # so that all it says at the start is said
    (line,) = started.said
    told = json.loads(line)
    assert told["url"] == f"http://127.0.0.1:{started.port}/v1"
    assert told["api_key_file"] == str(started.state / "api-key")
    assert started.key not in line
    assert all(json.loads(logged)["event"] for logged in started.logged)


# Its policy file


def test_sighup_has_the_policy_obeyed_anew_and_a_bad_one_changes_nothing(state: Path) -> None:
    policy = state.parent / "policy.json"

    def asked_for(wanted: dict[str, Any]) -> None:
        policy.write_text(json.dumps(wanted))
        running.process.send_signal(signal.SIGHUP)

    def said(words: str) -> Callable[[], bool]:
        return lambda: any(words in line for line in running.logged)

    policy.write_text('{"kv_dtype": "int8"}')
    with engine("--policy", str(policy), state=state) as running:
        before = running.complete(PROMPT)
        assert before.headers["x-luminet-kv-dtype"] == "int8"
        pins = [{"name": "head", "token_ids": PROMPT}]
        asked_for({"kv_dtype": "fp8", "pin_share": 0.5, "pins": pins})
        wait_until(said("as revision 2"))
        after = running.complete(PROMPT)
        assert after.headers["x-luminet-kv-dtype"] == "fp8"
        assert after.headers["x-luminet-policy-revision"] == "2"
        assert [pin["name"] for pin in running.admin("GET", "/pins").json["pins"]] == ["head"]
        for wrong, problem in (
            ({"ttl_seconds": 0}, "ttl_seconds: expected seconds above 0"),
            ({"kv_dtype": "fp3"}, "kv_dtype: 'fp3' is not served here"),
            ({"pins": [{"name": "head", "token_ids": [10**6]}]}, "token_ids"),
        ):
            asked_for(wrong)
            wait_until(said(problem))
            assert running.complete(PROMPT).headers["x-luminet-policy-revision"] == "2"
        policy.unlink()
        running.process.send_signal(signal.SIGHUP)
        wait_until(said("No such file"))
        assert running.complete(PROMPT).headers["x-luminet-kv-dtype"] == "fp8"
        asked_for({"kv_dtype": "fp8", "pin_share": 0.5})
        wait_until(lambda: running.admin("GET", "/pins").json["pins"] == [])
        assert running.complete(PROMPT).headers["x-luminet-policy-revision"] == "2"


def test_sighup_without_a_policy_file_is_survived(started: Engine) -> None:
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any("no policy file" in line for line in started.logged))
    assert started.complete(PROMPT).status == 200


def test_log_lines_for_programs_are_json(started: Engine) -> None:
    started.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any("SIGHUP" in line for line in started.logged))
    lines = [json.loads(line) for line in started.logged if "SIGHUP" in line]
    assert {line["level"] for line in lines} == {"warning"}


# How it ends


def test_who_still_sends_when_it_stops_is_told_to_ask_elsewhere(state: Path) -> None:
    with engine(state=state) as running:
        body = b'{"model": "demo", "prompt": "Hi", "max_tokens": 1}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n\r\n"
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
            client.sendall(head % (running.key.encode(), len(body)) + body[:9])
            assert running.ask("GET", "/health").status == 200  # and so the first part has been read
            running.process.send_signal(signal.SIGTERM)
            received = b""
            while data := client.recv(65_536):
                received += data
        assert received.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in received
        assert running.process.wait(READY_SECONDS) == 0
        assert not [line for line in running.logged if "Traceback" in line]


def test_who_stops_it_waits_for_what_runs_and_nobody_else_gets_in(state: Path) -> None:
    with engine(state=state) as running:
        connection, answer = streaming(running, 400)
        running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: running.ask("GET", "/health").status == 503)  # a load balancer sees it
        assert running.ask("GET", "/health").error == "draining"
        wait_until(lambda: running.complete(PROMPT).status == 503)
        rest = answer.read()
        assert rest.count(b"data: ") >= 200
        assert rest.endswith(b"data: [DONE]\n\n")
        connection.close()
        assert running.process.wait(READY_SECONDS) == 0
        assert not (state / "admin.sock").exists()


def test_it_waits_no_longer_than_it_was_told(state: Path) -> None:
    with engine("--drain-seconds", "0.2", state=state) as running:
        connection, answer = streaming(running, 8_000)
        assert running.stop() == 0
        *_, last = answer.read().split(b"\n\n")[:-1]
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "engine_failed"
        connection.close()
    assert outcomes(state) == ["error"]


def test_a_second_signal_ends_it_at_once(state: Path) -> None:
    with engine(state=state) as running:
        connection, _ = streaming(running, 8_000)
        running.process.send_signal(signal.SIGINT)
        wait_until(lambda: running.complete(PROMPT).status == 503)
        assert running.stop(signal.SIGINT) == 128 + signal.SIGINT
        connection.close()


def test_what_was_counted_before_kill_9_is_told_by_the_next_process(state: Path) -> None:
    with engine(state=state) as running:
        answered = running.complete(PROMPT)
        connection, _ = streaming(running, 8_000)
        boot = running.admin("GET", "/stats").json["boot"]
        running.process.kill()
        running.process.wait()
        connection.close()
    with engine(state=state) as running:
        page = running.admin("GET", f"/journal?boot={boot}").json
        opened = [entry for entry in page["entries"] if entry["type"] == "opened"]
        assert [entry["prompt_tokens"] for entry in opened] == [80, 80]
        assert opened[0]["request_id"] == answered.headers["x-request-id"]
        assert [entry["request_id"] for entry in page["entries"] if entry["type"] == "closed"] == [
            opened[0]["request_id"]
        ]
        assert page["lost"] == []


def test_every_header_that_left_before_kill_9_is_in_the_journal_with_its_numbers(state: Path) -> None:
    with engine(state=state) as running:
        told: list[dict[str, str]] = []

        def keep_asking(client: int) -> None:
            for number in itertools.count():
                prompt = [client + 1, *PROMPT, *[number % 7 + 1] * 20]
                try:
                    told.append(dict(running.complete(prompt, stream=number % 2 == 0).headers))
                except (OSError, HTTPException):
                    return

        clients = [Thread(target=keep_asking, args=(client,)) for client in range(4)]
        for client in clients:
            client.start()
        wait_until(lambda: len(told) >= 40)
        running.process.kill()
        for client in clients:
            client.join()
    opened = {record.request_id: record for record in records(state) if isinstance(record, Opened)}
    assert len(told) <= len(opened) <= len(told) + len(clients)
    for headers in told:
        record = opened[headers["x-request-id"]]
        assert headers["x-luminet-prompt-tokens"] == str(record.prompt_tokens)
        assert headers["x-luminet-cached-tokens"] == str(record.cached_tokens)
        assert headers["x-luminet-miss-reason"] == record.miss_reason


def records(state: Path) -> list[Opened | Closed]:
    """What the engine that was here wrote down."""
    journal = Journal.open(state / "journal", "reader", most_bytes=2**30)
    try:
        (boot,) = [one.boot for one in journal.boots()]
        page = journal.since(boot, 0, 10_000)
        assert page.lost == ()
        return [entry.record for entry in page.entries]
    finally:
        journal.close()


def outcomes(state: Path) -> list[str]:
    """How its requests ended."""
    return [record.outcome for record in records(state) if isinstance(record, Closed)]


# What keeps it from starting


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    said = refused_to_start("--model", str(tmp_path), "--port", "0", "--state", str(tmp_path / "s"))
    assert said == f"luminet: {tmp_path}/config.json: No such file or directory"


def test_a_checkpoint_without_one_of_its_files_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in DEMO.iterdir():
        if file.name != "model.safetensors":
            (model / file.name).symlink_to(file)
    said = refused_to_start("--model", str(model), "--port", "0", "--state", str(tmp_path / "s"))
    assert said.startswith(f"luminet: {model}: has neither model.safetensors nor")


def test_scales_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in DEMO.iterdir():
        (model / file.name).symlink_to(file)
    (model / "kv_scales.safetensors").write_bytes(b"not scales")
    said = refused_to_start("--model", str(model), "--port", "0", "--state", str(tmp_path / "s"), "--device", "cpu")
    assert said.startswith(f"luminet: {model}/kv_scales.safetensors: is no safetensors file")


def test_a_policy_that_this_model_cannot_obey_is_named(tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"kv_dtype": "fp3"}')
    with state_folder() as state:
        said = refused_to_start(
            *("--model", str(DEMO), "--port", "0", "--state", str(state), "--policy", str(policy), "--device", "cpu")
        )
    assert said.startswith(f"luminet: {policy}: ns/default.policy.kv_dtype: 'fp3' is not served here")


def test_a_state_folder_that_another_engine_has_is_named(started: Engine) -> None:
    said = refused_to_start("--model", str(DEMO), "--port", "0", "--state", str(started.state))
    assert said == f"luminet: {started.state}: another engine has this folder: give this one another with --state"
    assert started.admin("GET", "/health").status == 200  # and its socket is still its own


def test_a_file_where_its_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    said = refused_to_start("--model", str(DEMO), "--port", "0", "--state", str(tmp_path / "s"))
    assert said == f"luminet: {tmp_path}/s: File exists"
