"""An engine with vLLM goes on in vLLM's own virtualenv, and where there is none it says what to do."""

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from engine_agent.backends.engine_config import EngineConfig, engine_config, engine_options
from engine_agent.backends.vllm.environment import go_to_vllms_python
from engine_agent.backends.vllm.launch import check_processor, check_room
from engine_agent.engine.config import read_config
from engine_agent.engine.errors import BadSetting
from engine_agent.process.config import CHECKOUT
from tests.engines.processes import DEMO
from tests.vllm.environment import status_of


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
    go_to_vllms_python(config(), [], has_vllm=lambda: True, version=lambda: "0.32.0", become=_never)


def test_an_unknown_version_is_refused_by_the_command_before_anything_of_it_is_imported(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "vllm").mkdir(parents=True)
    (packages / "vllm" / "__init__.py").write_text("raise SystemExit('something of vLLM was imported')\n")
    (packages / "vllm-9.9.dist-info").mkdir()
    (packages / "vllm-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    command = [sys.executable, "-m", "engine_agent.server.command", "--backend", "vllm", "--model", str(DEMO)]
    ran = subprocess.run(
        [*command, "--port", "0", "--state", str(tmp_path / "state")],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("luminet: vLLM 9.9 was never tested with Luminet's scheduler, only 0.32.x: install")
    assert ran.stderr.count("\n") == 1
    assert [one.name for one in (tmp_path / "state").iterdir()] == ["last-words"]  # why, and nothing was begun


def test_where_there_is_none_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"there is no .*/python \(`make up BACKENDS=paged,vllm` makes it; --vllm-p"):
        go_to_vllms_python(config("--vllm-python", str(tmp_path / "python")), [], has_vllm=lambda: False, become=_never)


@pytest.mark.parametrize("name", ["int8_per_token_head", "k8v4", "int2", "fp16"])
def test_a_format_that_vllm_does_not_compute_is_named_before_anything_is_started(name: str) -> None:
    with pytest.raises(BadSetting, match=f"kv_dtype: '{name}' is none of what vLLM computes here: auto, bf16, fp8"):
        go_to_vllms_python(config("--kv-dtype", name), [], has_vllm=lambda: True, become=_never)


def test_a_pool_in_which_the_context_does_not_fit_is_told_with_both_numbers() -> None:
    model = read_config(CHECKOUT / "engine_agent" / "demo" / "model")
    token_bytes = 2 * model.layers * model.kv_heads * model.head_size
    check_room(model, 1024 * token_bytes, 1024, element_bytes=1)
    with pytest.raises(BadSetting, match="hold 1,023 tokens, fewer than the context of 1,024: raise --pool, or lower"):
        check_room(model, 1024 * token_bytes - 1, 1024, element_bytes=1)


@pytest.mark.parametrize("kv_format", ["fp8", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4"])
def test_quantised_formats_need_avx512_or_amx(kv_format: str) -> None:
    avx512 = frozenset(["fpu", "avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl"])
    check_processor(kv_format, avx512)
    check_processor(kv_format, frozenset({"fpu", "amx_tile"}))
    for flags in (frozenset[str](), frozenset({"fpu", "avx2"}), avx512 - {"avx512bw"}):
        with pytest.raises(BadSetting, match=f"^kv_dtype: vLLM computes {kv_format} on a CPU only with AVX-512 or AMX"):
            check_processor(kv_format, flags)


def test_other_formats_need_no_avx512() -> None:
    for kv_format in ("auto", "bf16"):
        check_processor(kv_format, frozenset({"fpu", "avx2"}))


def test_unknown_processors_are_left_to_vllm() -> None:
    check_processor("fp8", None)


def test_a_run_of_tests_that_a_signal_ended_is_no_success(tmp_path: Path) -> None:
    ends_well, ran = ("true",), tmp_path / "ran"
    assert status_of([ends_well, ends_well], os.environ) == 0
    for number in (signal.SIGKILL, signal.SIGSEGV):
        killed = (sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})")
        assert status_of([killed, ends_well], os.environ) == 1
    assert status_of([("false",), ("touch", str(ran))], os.environ) == 1
    assert ran.exists(), "the second is run in any case"


def _never(*what: object) -> None:
    raise AssertionError(what)
