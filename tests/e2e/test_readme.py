"""Every command of the README is run here, in its order, as written; a new one without a way to run it fails."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from controlplane.stack.ports import port_is_free
from tests.e2e.stack import CHECKOUT, Stack, end, environment, new_home, start, wait_serving
from tests.support.luminet_command import understood
from tests.support.make import planned
from tests.support.ports import free_engine_port, free_port, has_room
from tests.support.waiting import wait_until

Shell = Callable[[str], str]


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines()]


@pytest.fixture(scope="module")
def readers() -> Iterator[Stack]:
    """The stack that the reader of the README has after `make up`."""
    with new_home() as home:
        engine_port = 8101 if has_room(8101) else free_engine_port()
        gateway_port = 8080 if port_is_free("127.0.0.1", 8080) else free_port()
        more = {"LUMINET_ENGINE_PORT": str(engine_port), "LUMINET_GATEWAY_PORT": str(gateway_port)}
        stack = start(
            home, port=8000 if port_is_free("127.0.0.1", 8000) else free_port(), LUMINET_RUN_ENGINE="yes", **more
        )
        try:
            stack.wait_ready()
            wait_serving(stack)
            wait_until(lambda: {row["state"] for row in stack.status().values()} == {"ready"}, "every part ready")
            yield stack
        finally:
            end(stack)


@pytest.fixture
def shell(readers: Stack, tmp_path: Path) -> Shell:
    """Runs a line as the reader would, in a copy of the checkout whose environment is ours."""
    copy = tmp_path / "luminet"
    copy.mkdir()
    for name in ("Makefile", "deploy", "docker-compose.yml", "README.md"):
        source = CHECKOUT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    (copy / ".venv" / "bin").mkdir(parents=True)
    (copy / ".venv" / "bin" / "luminet").symlink_to(CHECKOUT / ".venv" / "bin" / "luminet")
    python = copy / ".venv" / "bin" / "python"  # no link: Python would look for its environment beside it
    python.write_text(f'#!/bin/sh\nexec "{CHECKOUT}/.venv/bin/python" "$@"\n')
    python.chmod(0o755)
    (copy / ".luminet").symlink_to(readers.home)

    def run(line: str) -> str:
        here = line.replace("http://127.0.0.1:8000", readers.web).replace("http://127.0.0.1:8080", readers.gateway)
        env = environment(readers.home, readers.port, http_proxy="", HTTP_PROXY="")  # curl would obey it
        done = subprocess.run(
            here, shell=True, cwd=copy, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_up_leads_to_what_the_readme_promises(readers: Stack) -> None:
    assert readers.web in readers.said
    assert readers.demo["operator"]["email"] in readers.said
    assert readers.demo["orgs"][0]["member"]["email"] in readers.said


def test_what_one_looks_around_with(shell: Shell, readers: Stack) -> None:
    assert "postgres" in shell(".venv/bin/luminet stack status")
    assert {row["state"] for row in json.loads(shell(".venv/bin/luminet stack status --json"))} == {"ready"}
    assert json.loads(shell("curl -s http://127.0.0.1:8000/readyz"))["status"] == "ok"
    assert "luminet_build_info" in shell("curl -s http://127.0.0.1:8000/metrics")
    assert json.loads(shell("cat .luminet/demo.json"))["web"] == readers.web
    said = shell(".venv/bin/luminet doctor")
    assert "The last pulse came through" in said
    assert re.search(r"^(\d+ warnings?, )?\d+ well", said.splitlines()[-1])


ORGANISATIONS = (
    "curl -s -H \"Authorization: Bearer $(grep -o 'lmo_[0-9A-Za-z]*' .luminet/demo.json)\" "
    "http://127.0.0.1:8000/api/v1/orgs"
)


def test_a_program_lists_the_organisations_of_the_demo(shell: Shell) -> None:
    assert [org["slug"] for org in json.loads(shell(ORGANISATIONS))["items"]] == ["acme", "globex", "initech"]


MODEL_ASKED = (
    "curl -i http://127.0.0.1:8080/v1/chat/completions   "
    "-H \"authorization: Bearer $(grep -o 'lmk_[0-9A-Za-z]*' .luminet/demo.json | head -n 1)\" "
    '-H \'content-type: application/json\'   -d \'{"model": "luminet-demo", "messages": [{"role": "user", "content": '
    '"What does the module json do, and when would I use it?"}], "max_tokens": 60}\''
)


def test_a_header_says_what_the_cache_was_worth(shell: Shell) -> None:
    """There are two agents, each with a cache of its own."""
    answers = [shell(MODEL_ASKED) for _ in range(3)]
    assert "x-luminet-cache-hit: 0.0" in answers[0]
    assert any("x-luminet-miss-reason: none" in answered for answered in answers)
    for answered in answers:
        assert json.loads(answered.splitlines()[-1])["choices"][0]["message"]["content"]


NUMBERS = (
    ".venv/bin/luminet demo-traffic status",
    ".venv/bin/luminet what-if acme/support-bot --ttl 1h",
    ".venv/bin/luminet demo-traffic stop",
)


def test_the_demos_traffic_can_be_looked_at_and_stopped_and_a_ttl_be_foretold(shell: Shell) -> None:
    """In this stack none runs: it would disturb the test above. What it does is tests/e2e/test_demo_traffic.py's."""
    status, foretold, stopped = map(shell, NUMBERS)
    assert "Demo traffic is on." in status
    assert "Too little traffic to foretell anything: 0 prompt tokens were seen" in foretold
    assert "Demo traffic is off" in stopped


def test_make_test_is_what_runs_now_and_check_contains_it() -> None:
    assert "exec .venv/bin/python -m pytest" in planned("test")[-1]
    assert planned("test")[-1] in planned("check")


def test_help_lists_every_target(shell: Shell) -> None:
    told = shell("make help")
    assert all(f"make {target}" in told for target in ("up", "down", "clean", "test", "check", "bench"))


def test_bench_knows_its_rows() -> None:
    assert "exec .venv/bin/python -m tests.bench" in planned("bench")[-1]
    command = [str(CHECKOUT / ".venv" / "bin" / "python"), "-m", "tests.bench", "--list"]
    rows = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert "W1" in rows
    assert "W2" in rows


def test_production_secrets_complete_the_example(shell: Shell, tmp_path: Path) -> None:
    shell("cp deploy/.env.example .env && chmod 600 .env")
    shell(".venv/bin/luminet secrets >> .env")
    lines = (tmp_path / "luminet" / ".env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    required = set(re.findall(r"\$\{([A-Z_]+):?\?", (CHECKOUT / "docker-compose.yml").read_text()))
    assert required
    assert {name for name in required if not given.get(name)} == set()


def test_the_docker_commands_name_what_exists() -> None:
    """There may be no Docker here; the process twin starts these services, and this is the rest of the two lines."""
    services = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["services"]
    for line in (line for line in commands() if line.startswith("docker compose exec")):
        service, program, *arguments = line.removeprefix("docker compose exec ").split()
        assert service in services
        assert program == "luminet"
        understood(arguments)


def test_down_stops_it_and_clean_deletes_it(shell: Shell, readers: Stack, tmp_path: Path) -> None:
    assert "Stopped in" in shell("make down")
    assert "Deleted" in shell("make clean YES=1")
    assert not readers.home.exists()
    assert not (tmp_path / "luminet" / ".venv").exists()


RUN_ABOVE = {
    "make up",
    "make test",
    ".venv/bin/luminet stack status",
    ".venv/bin/luminet stack status --json",
    ".venv/bin/luminet doctor",
    "curl -s http://127.0.0.1:8000/readyz",
    "curl -s http://127.0.0.1:8000/metrics",
    "cat .luminet/demo.json",
    ORGANISATIONS,
    MODEL_ASKED,
    *NUMBERS,
    "make down",
    "make clean YES=1",
    "make check",
    "make bench",
    "make help",
    "cp deploy/.env.example .env && chmod 600 .env",
    ".venv/bin/luminet secrets >> .env",
    "docker compose up --detach --build --wait",
    "docker compose exec web luminet create-operator you@example.com",
}


def test_no_command_of_the_readme_is_left_out() -> None:
    assert set(commands()) == RUN_ABOVE
    assert os.access(CHECKOUT / ".ci" / "run", os.X_OK)
