"""What cannot be started says why in one line, and what dies ends: no crash loop inside, and nothing left behind."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_agent.process.last_words import last_words_take
from tests.conformance.fleet_engine import START_SECONDS, FleetEngine
from tests.engines.processes import DEMO, engine, state_folder
from tests.support.waiting import wait_until
from tests.vllm.beside.processes import children, core_of
from tests.vllm.processor import vllm_format

VLLM_OPTIONS = ("--backend", "vllm", "--context", "1024")
TOLD_SECONDS = 20  # less than a process that ends waits for what still runs


def test_when_vllms_engine_dies_who_asks_is_told_and_the_process_ends_and_leaves_nothing(
    vllm_engine: FleetEngine,
) -> None:
    agent = vllm_engine  # the last of all who use it
    agent.govern(one={})
    assert agent.complete("one", agent.fresh(1)).status == 200
    front = agent.engine.process.pid
    core = core_of(front)
    (worker, *_) = children(core)
    prompt = agent.fresh(1)
    os.kill(core, signal.SIGSTOP)  # what is asked from here on is under way when it dies
    with ThreadPoolExecutor() as threads:
        asking = [
            threads.submit(agent.engine.admin, "GET", "/stats"),
            threads.submit(agent.complete, "one", prompt),
        ]
        time.sleep(1)
        os.kill(core, signal.SIGKILL)
        assert all(one.result(TOLD_SECONDS).status >= 500 for one in asking)
    assert agent.engine.process.wait(60) == 1
    last = [line for line in agent.engine.logged if line.strip()][-1]
    assert "vLLM's engine has ended: one of its processes was ended by SIGKILL" in last
    assert last_words_take(agent.engine.state).removesuffix("…") in last
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


def refusal(*options: str, model: Path = DEMO) -> str:
    with state_folder() as state:
        starting = engine(*VLLM_OPTIONS, *options, state=state, model=model, ready_seconds=START_SECONDS)
        with pytest.raises(RuntimeError) as refused:
            starting.__enter__()
    return str(refused.value)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "config.json") in refusal(model=tmp_path)


def test_a_pool_too_small_for_the_context_is_told_with_both_numbers() -> None:
    assert "fewer than the context of 1,024: raise --pool, or lower --context" in refusal("--pool", "64KiB")


def test_a_format_that_vllm_takes_and_does_not_compute_is_refused_with_error_and_limit() -> None:
    said = refusal("--kv-dtype", "int8")
    if vllm_format() == "bf16":
        assert "kv_dtype: vLLM computes int8 on a CPU only with AVX-512 or AMX, which this CPU lacks: use bf16" in said
    else:
        assert re.search(r"int8: this vLLM's attention is off by \d+%, and rounding explains 3% at most", said), said


def test_memory_that_is_not_there_is_named_in_the_last_line_and_beside_the_socket() -> None:
    with state_folder() as state:
        starting = engine(*VLLM_OPTIONS, "--pool", "64TiB", state=state, ready_seconds=START_SECONDS)
        with pytest.raises(RuntimeError) as refused:
            starting.__enter__()
        last = str(refused.value).strip().splitlines()[-1]
        assert "vLLM did not start: " in last
        assert "memory" in last.lower()
        assert last_words_take(state).removesuffix("…") in last
