"""Why vLLM's processes end, as far as that needs no vLLM."""

import json
import logging
import logging.config
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_agent.backends.vllm.dying import Listening, exit_codes_in, said_of
from engine_agent.backends.vllm.governor import Setup

FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}"


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    monkeypatch.delenv("VLLM_LOGGING_CONFIG_PATH", raising=False)
    heard = Listening()
    yield heard
    heard.close()


def log(message: str, error: Exception) -> None:
    try:
        raise error
    except type(error):
        logging.getLogger("vllm.v1.engine.core").exception(message)


def test_the_first_fatal_error_is_the_cause(listening: Listening) -> None:
    log("Invocation of %s method failed", ValueError("of one call, and no cause"))
    log("WorkerProc failed to start.", RuntimeError("no such layer"))
    log("EngineCore failed to start.", Exception("a worker failed, see above"))
    assert listening.cause([1], FAILED) == "no such layer"


def test_without_one_it_is_the_signal_that_ended_a_process(listening: Listening) -> None:
    assert listening.cause(exit_codes_in(FAILED), FAILED).startswith("one of its processes was ended by SIGKILL")
    assert listening.cause([1, None], FAILED) == FAILED


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory: MemoryError"),
        (
            RuntimeError("[enforce] can't allocate memory: you tried"),
            "out of memory: [enforce] can't allocate memory: you tried",
        ),
        (ValueError("\n one \n two"), "one"),
        (KeyError("layers"), "KeyError: 'layers'"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, said: str) -> None:
    assert said_of(error) == said


def test_processes_that_are_not_forked_hear_of_it_by_vllms_own_logging(listening: Listening) -> None:
    config = json.loads(Path(os.environ["VLLM_LOGGING_CONFIG_PATH"]).read_text())
    logger = logging.getLogger("vllm")
    before = logger.handlers[:]
    try:
        logger.handlers.clear()
        logging.config.dictConfig(config)
        log("EngineCore failed to start.", RuntimeError("no such layer"))
    finally:
        logger.handlers[:], logger.propagate = before, True
    assert listening.cause([], "") == "no such layer"


def test_a_setup_that_names_no_formats_has_those_of_who_starts() -> None:
    otherwise = Setup("model", kv_formats=("fp8_e4m3", "fp8"))
    assert Setup.unpacked({"luminet": {"most_waiting": 5}}, otherwise).kv_formats == ("fp8_e4m3", "fp8")
    assert Setup.unpacked({"luminet": {"kv_formats": ["bf16"]}}, otherwise).kv_formats == ("bf16",)
