"""What cannot be started says why in one line, and what dies ends: no crash loop inside, and nothing left behind."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.fleet_engine import START_SECONDS, fleet_engine, until
from tests.engine_processes import DEMO, engine, state_folder

VLLM_OPTIONS = ("--backend", "vllm", "--context", "1024")
TOLD_SECONDS = 20  # less than a process that ends waits for what still runs


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


def test_when_vllms_engine_dies_who_asks_is_told_and_the_process_ends_and_leaves_nothing() -> None:
    with fleet_engine("vllm") as agent:
        agent.govern(one={})
        assert agent.complete("one", agent.fresh(1)).status == 200
        front = agent.engine.process.pid
        (core,) = [pid for pid in children(front) if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()]
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
        assert any("vLLM's engine has ended" in line for line in agent.engine.logged)
        until(lambda: not Path(f"/proc/{worker}").exists())


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(one)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for one in (task / "children").read_text().split()
    ]
