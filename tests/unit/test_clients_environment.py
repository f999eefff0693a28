import json
from pathlib import Path

import pytest

from controlplane.settings.env import CHECKOUT
from controlplane.stack.environments import Unavailable
from tests.audit.pins import Pin, pins_all
from tests.clients import __main__ as clients
from tests.clients import ci
from tests.clients.environment import HERE, NODE_CLIENTS, PINS, PYTHON_CLIENTS, WANTED, NodeClients
from tests.support.make import planned
from tests.vllm.environment import FAILED, NOT_RUN, PASSED


def test_missing_node_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"no node and npm on PATH: install Node\.js"):
        NodeClients(tmp_path / "modules").ready_modules()


def test_old_node_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, printed in (("node", "v16.20.2"), ("npm", "8")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {printed}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"node is v16\.20\.2"):
        NodeClients(tmp_path / "modules").ready_modules()


def test_missing_generators_are_not_green(capsys: pytest.CaptureFixture[str]) -> None:
    def unavailable() -> None:
        raise Unavailable("no network")

    assert clients.main((unavailable,)) == NOT_RUN
    assert "NO GENERATED CLIENT WAS TESTED: no network" in capsys.readouterr().err


def test_ci_passes_without_generators(capsys: pytest.CaptureFixture[str]) -> None:
    assert [ci.main(lambda code=code: code) for code in (PASSED, FAILED, NOT_RUN)] == [PASSED, FAILED, PASSED]  # type: ignore[misc]
    assert "make test-clients" in capsys.readouterr().err


def test_pins_name_no_registry() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text())
    packages = {place: package for place, package in lock["packages"].items() if place}
    assert {"node_modules/openapi-fetch", "node_modules/openapi-typescript", "node_modules/typescript"} <= set(packages)
    assert [place for place, package in packages.items() if "resolved" in package or "integrity" not in package] == []
    assert WANTED in PINS.read_text().splitlines()


def test_audit_knows_generators() -> None:
    pins = pins_all()
    assert Pin("npm", "openapi-fetch", "0.17.0") in pins
    assert Pin("PyPI", *WANTED.split("==")) in pins


def test_folders_are_cleaned_and_ignored() -> None:
    removed = next(line for line in planned("clean") if "rm -rf" in line).split()
    ignored = (CHECKOUT / ".gitignore").read_text().splitlines()
    for folder in (PYTHON_CLIENTS.folder, NODE_CLIENTS.folder):
        assert folder.name in removed
        assert folder.name in ignored
