"""Both commands against our own engine: what they count is what it counted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_agent.tools.loadgen.command import main as bench
from engine_agent.tools.savings.command import main as savings
from engine_agent.tools.savings.engine import Engine, cpu_seconds_of, engine_running

DEMO = Path(__file__).parents[2] / "engine_agent" / "demo" / "model"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with engine_running(DEMO, ("--pool", "16MiB")) as running:
        yield running
        assert cpu_seconds_of(running.pid)
    assert cpu_seconds_of(running.pid) is None, "it outlived the measurement"


def run(engine: Engine, file: Path, *options: str) -> dict[str, Any]:
    assert bench(["--url", engine.url, "--key", engine.key, "--json", str(file), *options]) == 0
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_all_but_the_first_of_a_shared_prefix_are_hits(engine: Engine, tmp_path: Path) -> None:
    sizes = ("--prefix-tokens", "160", "--input-tokens", "20", "--output-tokens", "4", "--requests", "5")
    found = run(engine, tmp_path / "run.json", "--dataset", "shared-prefix", *sizes, "--concurrency", "1", "--details")
    assert found["form"]["takes_ids"]
    assert [one["cached_tokens"] for one in found["outcomes"]] == [0, 160, 160, 160, 160]
    assert (found["prompt_tokens"], found["output_tokens"]) == (5 * 180, 5 * 4)
    assert found["miss_reasons"] == {"cold": 5}
    assert found["header_and_usage_differ"] == 0
    assert {len(one["gaps_seconds"]) for one in found["outcomes"]} == {3}  # a piece for each token, said at once


@pytest.mark.parametrize("form", ["text", "chat"])
def test_text_and_chats_have_the_length_asked_for(engine: Engine, tmp_path: Path, form: str) -> None:
    sizes = ("--input-tokens", "300", "--output-tokens", "2", "--requests", "4", "--rate", "inf", "--seed", "7")
    found = run(engine, tmp_path / "run.json", "--prompts", form, *sizes)
    assert found["prompt_tokens"] / 4 == pytest.approx(300, rel=0.1)


def test_a_trace_hits_what_its_ids_share(engine: Engine, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1024, "output_length": 40, "hash_ids": [1, 2]},
        {"timestamp": 400, "input_length": 1536, "output_length": 40, "hash_ids": [1, 2, 3]},
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--dataset", "trace", "--trace", str(trace), "--trace-scale", "0.0625", "--details")
    found = run(engine, tmp_path / "run.json", *options)
    assert [one["prompt_tokens"] for one in found["outcomes"]] == [64, 96]
    assert [one["cached_tokens"] for one in found["outcomes"]] == [0, 64]
    assert found["outcomes"][1]["sent_seconds"] >= 0.4


def test_what_is_refused_is_counted_by_its_code(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--url", engine.url, "--key", engine.key, "--input-tokens", "9000", "--requests", "2"]
    assert bench([*options, "--json", str(tmp_path / "run.json")]) == 3
    assert json.loads((tmp_path / "run.json").read_text())["errors"] == {"HTTP 400 context_length_exceeded": 2}


def test_savings_are_measured_on_a_running_engine(engine: Engine, tmp_path: Path) -> None:
    sizes = ["--template-tokens", "512", "--tail-tokens", "16", "--output-tokens", "2", "--rounds", "2"]
    options = ["--url", engine.url, "--key", engine.key, *sizes, "--most-together", "2", "--bound", "60000"]
    assert savings([*options, "--json", str(tmp_path / "savings.json")]) == 0
    found = json.loads((tmp_path / "savings.json").read_text())
    assert found["with"]["cached_tokens"] == [512, 512]
    assert found["without"]["cached_tokens"] == [0, 0]
    assert found["kv_dtype"] == "fp8"
