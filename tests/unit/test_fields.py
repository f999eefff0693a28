"""Slugs, names and notes, with what Unicode can do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.errors import InvalidFields
from tenants.fields import NAME_LENGTH, NOTE_LENGTH, name_check, note_check, slug_check
from tests.support.case_names import case_name


def refusal(check: object, value: str) -> str:
    with pytest.raises(InvalidFields) as caught:
        check(value)  # type: ignore[operator]
    (problem,) = caught.value.problems
    return f"{problem.field} {problem.message}"


@pytest.mark.parametrize("slug", ["a", "0", "acme", "a-b", "a--b", "x" * 63, "1-2"])
def test_a_slug_is_one(slug: str) -> None:
    assert slug_check(slug) == slug


def test_what_is_no_slug_is_refused_and_quoted(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "",
        "-",
        "-a",
        "a-",
        "A",
        "a_b",
        "a.b",
        "a b",
        "a\n",
        "\na",
        "a/b",
        "..",
        "é",
        "а",
        "ａ",
        "x" * 64,
        "a\x00",
    ]
    for slug in cases:
        with subtests.test(msg=case_name(slug)):
            assert refusal(slug_check, slug).startswith(f"slug {slug!r} is none")


def test_a_huge_slug_is_quoted_in_part() -> None:
    assert len(refusal(slug_check, "x" * 1_000_000)) < 200


def test_a_name_is_trimmed_and_in_one_form() -> None:
    assert name_check("  Café \u3000") == "Café" == name_check("Cafe\u0301")


@pytest.mark.parametrize("name", ["Ünïcode 名前", "🚀 rocket", "a 'quote' & <b>", "x" * NAME_LENGTH])
def test_names_may_be_in_any_language(name: str) -> None:
    assert name_check(name) == name


@pytest.mark.parametrize("name", ["", "   ", "\u3000"])
def test_a_name_is_not_empty(name: str) -> None:
    assert refusal(name_check, name) == "name is empty"
    assert name_check(name, may_be_empty=True) == ""


INVISIBLE = [0x00, 0x0A, 0x1B, 0x7F, 0x200B, 0x202E, 0x2066, 0xFEFF, 0xD800, 0xE000, 0x2028, 0xE0041]


def test_what_cannot_be_seen_is_in_no_name(subtests: pytest.Subtests) -> None:
    for code in INVISIBLE:
        with subtests.test(msg=repr(code)):
            assert (
                refusal(name_check, f"a{chr(code)}b") == f"name holds the character U+{code:04X}, which cannot be shown"
            )


def test_lengths_are_counted_in_characters_after_trimming() -> None:
    assert name_check(" " * 200 + "x" * NAME_LENGTH) == "x" * NAME_LENGTH
    assert refusal(name_check, "é" * 101) == "name has 101 characters, 100 is the most"
    assert refusal(note_check, "x" * (NOTE_LENGTH + 1)) == "note has 501 characters, 500 is the most"


def test_a_note_may_have_lines_and_may_be_empty() -> None:
    assert note_check("one\n\ttwo ") == "one\n\ttwo"
    assert note_check("") == ""
    assert refusal(note_check, "a\rb")


@given(st.text(max_size=150))
def test_whatever_is_typed_is_taken_once_and_for_all_or_refused(text: str) -> None:
    try:
        name = name_check(text)
    except InvalidFields:
        return
    assert name_check(name) == name
    assert len(name.encode()) <= 4 * NAME_LENGTH
