"""What `docs/production.md` has readers type is understood by the commands themselves."""

import re
import shlex
from pathlib import Path

import pytest

import engine_agent.server.command
import engine_agent.sidecar.command
from tests.support.luminet_command import commands, understood

PAGE = (Path(__file__).parents[2] / "docs" / "production.md").read_text()
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:docker compose [^`]*?)?luminet [^`]+)`")


def in_blocks() -> list[list[str]]:
    """Each command line from `luminet` on, without what the shell makes of the rest."""
    lines = "\n".join(BLOCK.findall(PAGE)).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := luminet_words(line))]


def luminet_words(line: str) -> list[str]:
    pieces = re.split(r" [|>]+ |  +#", line.strip())
    piece = next((one for one in pieces if "luminet " in one), pieces[0]).rpartition("$(")[2].removesuffix(")")
    words = shlex.split(piece, comments=False)
    return words[words.index("luminet") + 1 :] if "luminet" in words else []


def is_understood(words: list[str]) -> bool:
    try:
        given = understood(words)
        if words[0] == "agent":
            agent, others = engine_agent.sidecar.command.parser().parse_known_args(given["arguments"])
            engine_agent.server.command.parser().parse_args(["--model", str(agent.model), *others])
    except SystemExit:
        return False
    return True


def test_there_is_something_to_type() -> None:
    wanted = {"secrets", "backup", "restore", "join-token", "apply", "quality", "calc", "run"}
    assert {words[0] for words in in_blocks()} >= wanted


def test_every_command_of_a_block_is_understood(subtests: pytest.Subtests) -> None:
    for words in in_blocks():
        with subtests.test(msg=" ".join(words)):
            assert is_understood(words)


def test_one_that_does_not_exist_would_show() -> None:
    assert not is_understood(["backup", "--nowhere", "file"])
    assert not is_understood(["agent", "--model", "m", "--nowhere"])


def test_every_command_named_in_the_text_exists() -> None:
    known = [one.removeprefix("luminet ").split() for one in commands()]
    for text in INLINE.findall(PAGE):
        words = luminet_words(text.replace("…", "X"))
        if not words:
            continue  # a database of that name
        assert any(words[: len(one)] == one for one in known), text


def test_settings_named_are_documented() -> None:
    operations = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert {one for one in re.findall(r"LUMINET_[A-Z_]*[A-Z]", PAGE) if one not in operations} == set()
