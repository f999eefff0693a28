"""The page about the engine, done as a newcomer would: what it shows is run as it stands, on another port."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine_agent.process.config import CHECKOUT, default_home
from tests.engines.processes import Engine, engine, state_folder

PAGE = (CHECKOUT / "docs" / "engine.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block(heading: str, language: str, number: int = 0) -> str:
    """A block of code behind a heading."""
    section = re.split(r"^## ", PAGE.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]
    return [match[2] for match in BLOCK.finditer(section) if match[1] == language][number]


@pytest.fixture(scope="module")
def newcomers() -> Iterator[Engine]:
    with state_folder() as state:
        state.mkdir()
        policy = state.parent / "policy.toml"
        policy.write_text(block("Policy of a standalone engine", "toml"))
        with engine("--policy", str(policy), state=state) as running:
            yield running


def shell(running: Engine, script: str) -> str:
    script = script.replace(".luminet/engine-8101", str(running.state)).replace(":8101", f":{running.port}")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.replace("\r", "")


def test_the_first_command_is_how_the_tests_start_engines() -> None:
    command = block("Start an engine", "sh").split()
    assert command == ["luminet", "engine", "--model", "engine_agent/demo/model", "--name", "demo"]
    assert (CHECKOUT / command[3] / "config.json").exists()
    assert default_home({}, "engine-8101") == CHECKOUT / ".luminet" / "engine-8101"


def test_curl_gets_an_answer_and_the_headers(newcomers: Engine) -> None:
    head, _, body = shell(newcomers, block("Send requests", "sh")).partition("\n\n")
    assert head.startswith("HTTP/1.1 200 OK")
    headers = {line.partition(": ")[0] for line in head.splitlines()}
    documented = set(re.findall(r"^\| `(x-[a-z-]+)` \|", PAGE, re.MULTILINE))
    assert len(documented) == 9
    assert documented <= headers
    assert json.loads(body)["choices"][0]["message"]["content"]


def test_the_openai_client_streams_and_reads_the_header(newcomers: Engine) -> None:
    script = block("Send requests", "python")
    script = script.replace(".luminet/engine-8101", str(newcomers.state)).replace(":8101", f":{newcomers.port}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    *_, usage, last = done.stdout.splitlines()
    assert "cached_tokens=" in usage
    assert re.fullmatch(r"\d+\.\d % of the prompt came from the cache", last)


def test_the_admin_face_answers_as_shown(newcomers: Engine) -> None:
    for line in block("Admin API", "sh").splitlines():
        assert "error" not in json.loads(shell(newcomers, line.replace("curl ", "curl -sS ", 1)))


def test_the_policy_shown_is_obeyed(newcomers: Engine) -> None:
    (pin,) = newcomers.admin("GET", "/pins").json["pins"]
    assert (pin["name"], pin["state"]) == ("support prompt", "active")
    answer = newcomers.complete([1, 2, 3])
    assert answer.headers["x-luminet-kv-dtype"] == "int8"
    assert newcomers.complete([1, 2, 3], kv_cache_dtype="bf16").headers["x-luminet-kv-dtype"] == "bf16"
    assert newcomers.complete([1, 2, 3], kv_cache_dtype="nvfp4").status == 400
