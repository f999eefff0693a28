"""How `luminet` lists, completes and refuses what is typed."""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from controlplane.cli import main
from controlplane.commands.standalone import STANDALONE
from tests.support.luminet_command import commands, understood

CHECKOUT = Path(__file__).parents[2]


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    with monkeypatch.context() as patch:
        patch.setenv("_LUMINET_COMPLETE", "bash_complete")
        patch.setenv("COMP_WORDS", words)
        patch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("luminet roll", ["rollback", "rollout"]),
        ("luminet ga", ["gateway"]),
        ("luminet doc", ["doctor"]),
        ("luminet rollout ", ["pause", "resume", "promote", "abort"]),
        ("luminet get al", ["alerts", "alert-rules"]),
        ("luminet apply --ta", ["--take-ownership"]),
        ("luminet create member acme kim@acme.example --role ", ["viewer", "editor", "admin"]),
        ("luminet stats --window 2", ["24h"]),
        ("luminet doctor --i", ["--insecure"]),
        ("luminet replay --pol", ["--policy"]),
        ("luminet --v", ["--version"]),
    ],
)
def test_tab_completes_commands_options_and_values(
    words: str, offered: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, words) == offered


def test_standalone_commands_complete_their_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for name, command in STANDALONE.items():
        with subtests.test(msg=name):
            parser: argparse.ArgumentParser = importlib.import_module(command.module).parser()
            options = [option for action in parser._actions for option in action.option_strings]
            assert completed(monkeypatch, capsys, f"luminet {name} -") == options


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_LUMINET_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_bash_completes_with_that_script(tmp_path: Path) -> None:
    program = tmp_path / "luminet"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m controlplane.cli "$@"\n')
    program.chmod(0o755)
    typed = (
        "source <(luminet completion bash); COMP_WORDS=(luminet join-token r); COMP_CWORD=2; "
        '_luminet_completion luminet; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-ec", typed],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "revoke\n"), done.stderr


def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = {
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and line.split()
    }
    assert {name.split()[1] for name in commands()} | set(STANDALONE) <= listed


def test_every_command_has_help_of_its_own(capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests) -> None:
    for name in commands():
        words = name.split()[1:]
        if words[0] not in STANDALONE:
            with subtests.test(msg=name):
                assert main([*words, "-h"]) == 0
                assert capsys.readouterr().out.startswith(f"Usage: {name}")


def test_what_was_probably_meant_is_said_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "orgs", "--jsno"]) == 1
    assert (
        capsys.readouterr().err
        == "luminet get: No such option '--jsno'. Did you mean '--json'? See luminet get --help\n"
    )


def test_what_is_missing_is_said_on_one_line_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("luminet get: Missing argument 'WHAT'. Choose from: orgs, org, namespaces, ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        "silence some-id", "silence some-id --for 2h --end", "restore", "restore file --already-restored",
        "create alert-rule a --metric drift", "create alert-rule a --metric drift --above 1 --below 2",
        "join-token create a --uses 2 --any-number",
    ],
)  # fmt: skip
def test_options_that_exclude_each_other_are_refused_before_anything_is_asked(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUMINET_URL", "not even an address")
    assert main(words.split()) == 1
    assert "give one of" in capsys.readouterr().err


def test_defaults_are_read_as_what_is_typed() -> None:
    assert understood(["purge", "acme"])["timeout"] == 600.0
    assert understood(["apply"])["max_deletes"] == 10
    assert understood(["join-token", "create", "a"])["expires_in"] == 3600
