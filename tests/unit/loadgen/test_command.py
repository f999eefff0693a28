"""The command as people type it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_agent.tools.loadgen.command import main, workload_of
from engine_agent.tools.loadgen.options import parser
from tests.unit.loadgen.openai_server import Scripted, serving

URL = "http://127.0.0.1:1/v1"


@contextmanager
def served(scripted: Scripted) -> Iterator[str]:
    """From a thread of its own: the command brings its own event loop."""
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with serving(scripted) as url:
            urls.append(url)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_a_run_prints_a_table_and_writes_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(Scripted()) as url:
        options = ["--requests", "6", "--concurrency", "2", "--input-tokens", "40", "--output-tokens", "3"]
        assert main(["--url", url, *options, "--warmup", "1", "--json", str(tmp_path / "run.json"), "--details"]) == 0
    told = capsys.readouterr().out
    assert "6 of 6 requests answered" in told
    assert "time to first token [ms]" in told
    found = json.loads((tmp_path / "run.json").read_text())
    assert (found["answered"], found["prompt_tokens"], found["output_tokens"]) == (6, 240, 18)
    assert found["asked"]["concurrency"] == 2
    assert len(found["outcomes"]) == 6


def test_a_run_with_failures_ends_with_3_and_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(response: object) -> None:
        if len(scripted.bodies) > 1:  # the first one finds out how to ask
            raise ConnectionResetError

    scripted = Scripted(misbehave=fail)
    with served(scripted) as url:
        assert main(["--url", url, "--requests", "2", "--output-tokens", "2", "--rate", "inf"]) == 3
    assert "2 failed: " in capsys.readouterr().out


def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_API_KEY", "secret")
    with served(Scripted(key="secret")) as url:
        assert main(["--url", url, "--requests", "1", "--output-tokens", "1"]) == 0


def test_a_trace_is_replayed_at_its_own_times(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 1000 * n, "input_length": 600, "output_length": 9, "hash_ids": [1, n]} for n in range(4)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = parser().parse_args(["--url", URL, "--dataset", "trace", "--trace", str(trace), "--trace-scale", "0.1"])
    workload = workload_of(options)
    assert [asked.at_seconds for asked in workload] == [0, 1, 2, 3]
    assert [len(asked.tokens) for asked in workload] == [60] * 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "localhost:8101"], "no address such as"),
        (["--url", URL, "--requests", "0"], "no whole number from 1"),
        (["--url", URL, "--rate", "-1"], "no rate above 0"),
        (["--url", URL, "--rate", "1", "--concurrency", "1"], "not allowed with"),
        (["--url", URL, "--vocabulary", "9:1"], "no range"),
        (["--url", URL, "--extra", "[1]"], "no JSON object"),
        (["--url", URL, "--header", "x"], "no header"),
    ],
)
def test_a_bad_option_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dataset", "trace"], "--trace: goes with --dataset trace"),
        (["--trace", "x.jsonl"], "--trace: goes with --dataset trace"),
        (["--dataset", "trace", "--trace", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--longest", "1"], "--longest: no prompt is as short"),
        ([], "cannot connect"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", URL, *arguments]) == 1
    told = capsys.readouterr().err
    assert complaint in told
    assert told.count("\n") == 1
