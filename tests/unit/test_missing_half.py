"""A machine with one half of Luminet says which extra the command that was asked for needs."""

import re
import tomllib
from pathlib import Path

import pytest

from controlplane import cli

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["gateway"], "agent"),
        (["simulate"], "agent"),
        (["agent"], "engine"),
        (["quality"], "engine"),
        (["run", "web"], "control"),
        (["whoami"], "control"),
        (["stack", "up"], "control,embedded"),
    ],
)
def test_the_extra_is_the_commands(words: list[str], extra: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._missing_half(ModuleNotFoundError(name="starlette"), words) == 1
    said = capsys.readouterr().err
    assert "starlette is not installed on this machine" in said
    found = re.search(r"-e '\.\[(.+)\]'", said)
    assert found is not None
    assert found[1] == extra
    assert set(extra.split(",")) <= set(EXTRAS)


def test_what_lacks_a_part_of_ours_is_broken_and_says_so() -> None:
    with pytest.raises(ModuleNotFoundError):
        cli._missing_half(ModuleNotFoundError(name="tenants.nowhere"), ["gateway"])
