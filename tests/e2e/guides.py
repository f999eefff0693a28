"""Guides of docs/ followed word for word beside a stack, and what they show compared with what comes out."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.stack import CHECKOUT, Stack, environment
from tests.support.ports import free_port

DOCS = CHECKOUT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
END = "--- end of block ---"
# What a reader does that no block says: type the name when asked, look at a plan, edit the file as the text above says.
READER = """
set -eu
luminet() {
  local status=0
  case "$1" in agent) exec luminet "$@" ;; esac  # in the background: what the reader kills is to be the agent itself
  case "$1" in rollback | purge | delete) set -- "$@" --yes ;; esac
  command luminet "$@" || status=$?
  case "$1 $status" in "plan 2" | "set-prices 2") ;; *) return "$status" ;; esac
}
"""
BY_HAND = {
    "Change `kv_dtype` of `chat` to `fp8` in the file": "sed -i 's/kv_dtype: int8/kv_dtype: fp8/' policies.yaml\n"
}


@dataclass(frozen=True, slots=True)
class Step:
    """Commands, and what the guide shows below them: JSON, or lines that come in this order; … stands for anything."""

    commands: str
    kind: str = ""
    shown: str = ""


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    end = 0
    for block in BLOCK.finditer(text):
        kind, content = block.groups()
        before, end = text[end : block.start()], block.end()
        if kind == "sh":
            found.append(Step("".join(done for said, done in BY_HAND.items() if said in before) + content))
        elif found and not found[-1].kind and kind in ("json", "text"):
            found[-1] = Step(found[-1].commands, kind, content)
    return found


def disagreements(guide: str, stack: Stack, folder: Path) -> list[str]:
    """Where what the guide shows is not what comes out when a reader follows it in that folder."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    assert len(steps(text)) > 5
    printed = followed(text, stack, folder)
    return [found for found in map(disagreement, steps(text), printed) if found]


def followed(text: str, stack: Stack, folder: Path) -> list[str]:
    """What each step printed, run one after the other in one shell, as a reader has one."""
    (folder / ".luminet").symlink_to(stack.home)
    (folder / "engine_agent").symlink_to(CHECKOUT / "engine_agent")  # the reader is in the checkout
    for name, content in FILE.findall(text):
        (folder / name).write_text(content, encoding="utf-8")
    script = READER + "".join(f"{one.commands}echo; echo '{END}'\n" for one in steps(text))
    token = stack.demo["operator"]["token"]
    here = {"http://127.0.0.1:8000": stack.web, "https://luminet.example.com": stack.web, "=lmo_…": f"={token}"}
    here |= {"http://127.0.0.1:8080": stack.gateway, "--port 8103": f"--port {free_port()} --status-port {free_port()}"}
    for written, real in here.items():
        script = script.replace(written, real)
    # curl would obey a proxy, and a guide may write into the reader's home.
    env = environment(stack.home, stack.port, http_proxy="", HTTP_PROXY="", HOME=str(folder))
    env["PATH"] = f"{CHECKOUT / '.venv' / 'bin'}:{env['PATH']}"
    reader = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = reader.communicate(timeout=240)
    finally:
        group_end(reader.pid)
    assert reader.returncode == 0, printed[-3000:] + said[-3000:]
    return printed.split(END)[:-1]


def group_end(group: int) -> None:
    """Whatever the reader began and a guide that failed halfway did not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + 20
        with contextlib.suppress(ProcessLookupError):  # there is nobody left
            os.killpg(group, number)
            while time.monotonic() < until:
                os.killpg(group, 0)
                time.sleep(0.05)


def disagreement(step: Step, printed: str) -> str | None:
    if step.kind == "json" and not json_agrees(json.loads(step.shown), json.loads(printed)):
        return f"{step.commands}shows {step.shown}but printed {printed}"
    if step.kind == "text" and not lines_agree(step.shown.splitlines(), printed.splitlines()):
        return f"{step.commands}shows {step.shown}but printed {printed}"
    return None


def json_agrees(shown: Any, printed: Any) -> bool:
    if isinstance(shown, dict) and isinstance(printed, dict):
        return shown.keys() == printed.keys() and all(json_agrees(shown[name], printed[name]) for name in shown)
    if isinstance(shown, list) and isinstance(printed, list):
        return len(shown) == len(printed) and all(map(json_agrees, shown, printed))
    if shown == "…":  # also for null
        return isinstance(printed, str | None)
    if isinstance(shown, str) and isinstance(printed, str):
        return text_agrees(shown, printed)
    return bool(shown == printed) and type(shown) is type(printed)


def text_agrees(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed, re.IGNORECASE) is not None


def lines_agree(shown: list[str], printed: list[str]) -> bool:
    """Each line that is shown is there; headers come in no certain order."""
    return all(any(text_agrees(line.strip(), one.strip()) for one in printed) for line in shown if line.strip() != "…")
