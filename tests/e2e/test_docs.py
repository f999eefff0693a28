"""The guides of docs/ are followed word for word on a running stack, and what they show is what comes out."""

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

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages import Look, violations
from tests.e2e.stack import CHECKOUT, Stack, environment
from tests.ports import free_port

DOCS = CHECKOUT / "docs"
GUIDES = ("api.md", "cli.md", "calculator.md")
OF_THE_FLEET = "fleet.md"
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
    env = environment(stack.home, stack.port, http_proxy="", HTTP_PROXY="")  # curl would obey it
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
    if shown == "…":  # also for null: readers have agents, so a publication has a rollout, and this stack has none
        return isinstance(printed, str | None)
    if isinstance(shown, str) and isinstance(printed, str):
        return text_agrees(shown, printed)
    return bool(shown == printed) and type(shown) is type(printed)


def text_agrees(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed, re.IGNORECASE) is not None


def lines_agree(shown: list[str], printed: list[str]) -> bool:
    """Each line that is shown is there; headers come in no certain order."""
    return all(any(text_agrees(line.strip(), one.strip()) for one in printed) for line in shown if line.strip() != "…")


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_can_be_followed_word_for_word(guide: str, stack: Stack, tmp_path: Path) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    assert len(steps(text)) > 5
    printed = followed(text, stack, tmp_path)
    assert [found for found in map(disagreement, steps(text), printed) if found] == []


def test_the_guide_to_the_fleet_can_be_followed_word_for_word(fleet_stack: Stack, tmp_path: Path) -> None:
    text = (DOCS / OF_THE_FLEET).read_text(encoding="utf-8")
    printed = followed(text, fleet_stack, tmp_path)
    assert [found for found in map(disagreement, steps(text), printed) if found] == []


def test_what_the_reader_does_by_hand_is_still_in_the_text() -> None:
    text = "".join((DOCS / guide).read_text(encoding="utf-8") for guide in GUIDES)
    assert [said for said in BY_HAND if said not in text] == []


def test_a_guide_that_shows_something_else_would_be_found() -> None:
    wrong = [
        (Step("", "json", '{"a": 1}'), '{"a": 2}'),
        (Step("", "json", '{"a": "x…"}'), '{"a": "y"}'),
        (Step("", "json", '{"a": 1}'), '{"a": 1, "b": 2}'),
        (Step("", "json", '{"a": [1]}'), '{"a": [1, 2]}'),
        (Step("", "json", '{"a": 1}'), '{"a": true}'),
        (Step("", "text", "one\nthree"), "one\ntwo"),
    ]
    assert all(disagreement(step, printed) for step, printed in wrong)
    assert disagreement(Step("", "json", '{"a": "x…"}'), '{"a": "xyz"}') is None
    assert disagreement(Step("", "text", "ETag: …"), 'etag: "1"\nother') is None


@pytest.mark.parametrize("look", [("light", "wide"), ("dark", "narrow")], ids="-".join, indirect=True)
def test_the_page_of_the_api_is_accessible_and_fits(look: Look) -> None:
    """Without its picture: it would be 80,000 pixels high."""
    page, _ = look
    page.goto("/api/v1/docs")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_page_of_the_api_leads_to_each_operation(page: Page, stack: Stack) -> None:
    page.goto("/api/v1/docs")
    contents = page.get_by_role("navigation", name="Contents", exact=True)
    contents.get_by_role("link", name="PUT Publish the policy of a namespace").click()
    expect(page).to_have_url(re.compile("#namespace_policy_put$"))
    expect(page.get_by_role("heading", name="Publish the policy of a namespace")).to_be_in_viewport()
    expect(page.get_by_role("article", name="Publish the policy of a namespace")).to_contain_text("If-Match")


def test_the_page_of_the_api_can_be_read_on_a_phone(page: Page, stack: Stack) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/api/v1/docs")
    page.locator(".docs-fold summary").click()
    page.get_by_role("link", name="POST Create a key").click()
    expect(page.get_by_role("heading", name="Create a key")).to_be_in_viewport()
