"""An engine with vLLM goes on in vLLM's own virtualenv, and where there is none it says what to do."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from engine_agent.backends.vllm.environment import go_to_vllms_python
from engine_agent.config import CHECKOUT, EngineConfig, engine_config, engine_options
from engine_agent.engine.errors import BadSetting


def config(*options: str) -> EngineConfig:
    parser = ArgumentParser()
    engine_options(parser)
    return engine_config(parser.parse_args(["--model", "m", "--backend", "vllm", *options]), {})


def test_it_goes_on_as_the_same_process_with_the_same_options(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.touch(0o755)
    became: list[Any] = []
    options = ["--model", "m", "--backend", "vllm", "--vllm-python", str(python)]
    go_to_vllms_python(config(*options[4:]), options, has_vllm=lambda: False, become=lambda *what: became.extend(what))
    assert became[:2] == [str(python), [str(python), "-m", "engine_agent.server.command", *options]]
    assert became[2]["PYTHONPATH"].split(":")[0] == str(CHECKOUT)


def test_where_vllm_is_at_hand_it_stays() -> None:
    go_to_vllms_python(config(), [], has_vllm=lambda: True, become=_never)


def test_where_there_is_none_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"there is no .*/python \(`make test-vllm` makes it; --vllm-python names"):
        go_to_vllms_python(config("--vllm-python", str(tmp_path / "python")), [], has_vllm=lambda: False, become=_never)


def _never(*what: object) -> None:
    raise AssertionError(what)
