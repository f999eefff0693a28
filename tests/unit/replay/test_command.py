"""`luminet replay`: through the command's own door, on traces that are made up."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import main
from engine_agent.tools.replay.policies import DEFAULT_TTLS
from tests.unit.replay.examples import BLOCK_TOKENS, lines_of, made_up

CHECKOUT = Path(__file__).parents[3]
ROWS = len(DEFAULT_TTLS)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(lines_of(made_up(200))), encoding="utf-8")
    return str(path)


def run(trace: str, *options: str) -> int:
    return main(["replay", trace, "--block-tokens", str(BLOCK_TOKENS), *options])


def document(capsys: pytest.CaptureFixture[str], trace: str, *options: str) -> dict[str, Any]:
    assert run(trace, "--json", *options) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_without_options_the_policies_worth_a_look_are_compared(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace) == 0
    out, err = capsys.readouterr()
    for label in ("no TTL", "sliding 60 s", "sliding 300 s", "sliding 600 s", "sliding 1,800 s", "absolute 300 s"):
        assert f"\n{label} " in out
    assert out.startswith("trace.jsonl · 200 requests in ")
    assert err == ""


def test_rows_are_what_was_asked_for(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policy", "none", "--ttl", "60,5m", "--ttl-mode", "sliding,absolute", "--pool", "1k", "--pool", "4k"]
    rows = document(capsys, trace, *options)["rows"]
    assert [(row["pool_tokens"], row["ttl_mode"], row["ttl_seconds"]) for row in rows] == [
        (pool, *ttl)
        for pool in (1000, 4000)
        for ttl in ((None, None), ("sliding", 60), ("sliding", 300), ("absolute", 60), ("absolute", 300))
    ]


def test_a_longer_ttl_and_a_larger_pool_serve_more(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, trace, "--ttl", "10,60,600", "--pool", "3k")["rows"]
    ratios = [row["hit_ratio"] for row in document(capsys, trace, "--ttl", "10,60,600", "--policy", "none")["rows"][1:]]
    assert ratios == sorted(ratios)
    assert all(small["hit_ratio"] <= large for small, large in zip(rows, ratios, strict=True))


def test_namespaces_shares_and_a_flooder(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--split", "2", "--only", "namespace-0", "--flood", "4", "--policy", "none", "--pool", "2k"]
    fair, reserved, mixed = (
        document(capsys, trace, *one, *more)["rows"][0]["by_namespace"]
        for more in (
            [],
            ["--reserved", "namespace-0=0.8", "--limit", "flooder=0.5", "--weight", "flooder=0.5"],
            ["--one-cache"],
        )
    )
    assert [space["namespace"] for space in fair] == ["flooder", "namespace-0"]
    assert reserved[1]["hit_ratio"] >= fair[1]["hit_ratio"] > mixed[1]["hit_ratio"]


def test_a_head_is_the_beginning(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, trace, "--head", "17")["trace"]["requests"] == 17


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(lines_of(made_up(20)))))
    assert document(capsys, "-")["trace"]["name"] == "standard input"


def test_answers_can_take_time(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = document(capsys, trace, "--policy", "none", "--pool", "1k", "--service-seconds-per-token", "1")["rows"][0]
    assert row["waited_requests"] > 0
    assert row["longest_wait_seconds"] > 0
    assert row["preemptions"] > 0


def test_plots_are_written_and_named(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace, "--plots", str(tmp_path / "plots")) == 0
    assert capsys.readouterr().err.count("wrote ") == 4
    assert len(list((tmp_path / "plots").iterdir())) == 4


def test_without_matplotlib_only_plots_cannot_be_had(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(trace) == 0
    assert run(trace, "--plots", str(tmp_path)) == 1
    assert "pip install" in capsys.readouterr().err


def test_a_bad_line_ends_with_one_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"timestamp": 0, "input_length": 3, "output_length": 0, "hash_ids": [1]}\n\xff\xfe\n')
    assert run(str(path)) == 1
    assert capsys.readouterr().err.startswith("luminet: bad.jsonl: line 2: line: is no JSON")


def test_what_cannot_be_opened_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path):
        assert run(str(path)) == 1
        assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "acme"), "--only: acme has no requests"),
        (("--limit", "acme=0.5", "--pool", "3k"), "--limit: no request is of the namespace acme"),
        (("--limit", "default=0.5"), "--limit: is a share of a pool, so it needs --pool"),
        (("--weight", "default=2", "--pool", "3k", "--one-cache"), "--weight: "),
        (("--reserved", "default=0.9", "--limit", "default=0.5", "--pool", "3k"), "--reserved and --limit: "),
        (
            ("--split", "2", "--reserved", "namespace-0=0.9", "--reserved", "namespace-1=0.2", "--pool", "3k"),
            "--reserved: 1.1 together",
        ),
        (("--block-tokens", "8"), "line 1: hash_ids: expected "),
    ],
)
def test_options_that_do_not_go_together_are_named(
    trace: str, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(trace, *options) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("x", "--pool", "many"), ("x", "--block-tokens", "1"), ("x", "--ttl", "0")])
def test_a_mistyped_command_ends_with_one(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", *options])
    assert ended.value.code == 1
    assert "luminet replay: " in capsys.readouterr().err


def test_its_help_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", "--help"])
    assert ended.value.code == 0
    assert "--service-seconds-per-token" in capsys.readouterr().out


LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
import engine_agent.tools.replay.command
print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'}))
"""


def test_it_needs_nothing_but_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", LOADED, str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["engine_agent"]
