"""Chats made of docstrings."""

from itertools import chain
from random import Random

import pytest

from engine_agent.tools.training.chats import Message, answer_about, make_chats, render
from engine_agent.tools.training.entries import Entry

ENTRIES = [
    Entry(
        "textwrap", f"wrap{number}", "(text, width=70)", f"Wrap a paragraph in way number {number}.\n\nMore about it."
    )
    for number in range(40)
]


@pytest.fixture(scope="module")
def chats() -> list[tuple[Message, ...]]:
    return list(make_chats(ENTRIES, Random(1)))


def test_an_answer_is_the_name_and_the_first_paragraph() -> None:
    assert answer_about(ENTRIES[3]) == "`textwrap.wrap3`: Wrap a paragraph in way number 3."


def test_a_long_first_paragraph_is_cut_after_a_sentence() -> None:
    entry = Entry("m", "f", "()", "One sentence that goes on. " * 20)
    assert 100 < len(entry.summary) < 200
    assert entry.summary.endswith("on.")


def test_every_object_is_asked_about_and_answered_from_its_docstring(chats: list[tuple[Message, ...]]) -> None:
    said = {message.content for message in chain(*chats) if message.role == "assistant"}
    assert {answer_about(entry) for entry in ENTRIES} <= said


def test_users_and_the_assistant_take_turns_behind_at_most_one_system_prompt(chats: list[tuple[Message, ...]]) -> None:
    for chat in chats:
        roles = [message.role for message in chat]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        assert turns


def test_some_have_a_system_prompt_and_some_a_second_turn(chats: list[tuple[Message, ...]]) -> None:
    with_system = sum(chat[0].role == "system" for chat in chats)
    longer = sum(sum(message.role == "user" for message in chat) > 1 for chat in chats)
    assert 0.1 * len(chats) < with_system < 0.6 * len(chats)
    assert 0.05 * len(chats) < longer < 0.6 * len(chats)


def test_what_is_asked_about_a_page_stands_on_it(chats: list[tuple[Message, ...]]) -> None:
    about_pages = [chat for chat in chats if chat[0].content.startswith("Answer from this page.")]
    assert about_pages
    for chat in about_pages:
        for message in chat[2::2]:
            name = message.content.split("`")[1]
            assert f"{name}(text, width=70)\n" in chat[0].content


def test_private_objects_and_empty_words_are_not_asked_about() -> None:
    private, terse = Entry("m", "_hidden", "()", "Do what nobody should know."), Entry("m", "f", "()", "Do it.")
    assert "m." not in "".join(map(render, make_chats([private, terse], Random(1))))


def test_the_same_seed_makes_the_same_chats(chats: list[tuple[Message, ...]]) -> None:
    assert list(make_chats(ENTRIES, Random(1))) == chats
    assert list(make_chats(ENTRIES, Random(2))) != chats
