"""Why an engine ended, from its state folder."""

from pathlib import Path

import pytest

from engine_agent.process.last_words import MOST_CHARACTERS, ended_by, last_words_leave, last_words_take
from engine_agent.server.command import main


def test_they_are_taken_once_and_fit_one_line(tmp_path: Path) -> None:
    last_words_leave(tmp_path, "a\n  b " + "c" * 1000)
    said = last_words_take(tmp_path)
    assert said.startswith("a b ccc")
    assert len(said) == MOST_CHARACTERS
    assert last_words_take(tmp_path) == ""


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    last_words_leave(tmp_path / "file", "why")


@pytest.mark.parametrize(
    ("status", "said"),
    [(1, "ended with status 1"), (-15, "was ended by SIGTERM"), (-9, "was ended by SIGKILL, as the system does")],
)
def test_a_status_is_told_in_words(status: int, said: str) -> None:
    assert ended_by(status).startswith(said)


def test_an_engine_without_a_model_says_so_in_its_state_folder_and_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, state = tmp_path / "model", tmp_path / "state"
    assert main(["--model", str(model), "--state", str(state)]) == 1
    said = last_words_take(state)
    assert str(model) in said
    assert said in " ".join(capsys.readouterr().err.splitlines()[-1].split())
