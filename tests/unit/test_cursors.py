import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.cursors import cursor_decode, cursor_encode
from controlplane.api.errors import BadCursor

KEY = b"k" * 32
CURSOR = cursor_encode("keys:acme", 41, key=KEY)


@given(st.text(max_size=20), st.integers() | st.text(max_size=100))
def test_a_cursor_comes_back_as_it_was(kind: str, value: str | int) -> None:
    text = cursor_encode(kind, value, key=KEY)
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")
    assert cursor_decode(kind, text, key=KEY) == value


@pytest.mark.parametrize("kind", ["keys:globex", "members:acme", "keys", ""])
def test_a_cursor_of_another_list_is_refused(kind: str) -> None:
    with pytest.raises(BadCursor):
        cursor_decode(kind, CURSOR, key=KEY)


def test_a_cursor_signed_with_another_key_is_refused() -> None:
    with pytest.raises(BadCursor):
        cursor_decode("keys:acme", CURSOR, key=b"x" * 32)


def test_a_cursor_with_one_letter_changed_is_refused() -> None:
    for at, letter in enumerate(CURSOR):
        changed = CURSOR[:at] + ("A" if letter != "A" else "B") + CURSOR[at + 1 :]
        with pytest.raises(BadCursor):
            cursor_decode("keys:acme", changed, key=KEY)


MADE_UP = {
    "nothing": "",
    "a number": "41",
    "well-formed": base64.urlsafe_b64encode(bytes(30)).rstrip(b"=").decode(),
    "padded": CURSOR + "=",
    "longer": CURSOR + "A",
    "shorter": CURSOR[:-1],
    "with a space": " " + CURSOR,
    "not ASCII": "é",
    "a surrogate": "\ud800",
    "NUL": "\0",
    "endless": "A" * 100_000,
}


def test_a_made_up_cursor_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for name in MADE_UP:
        with subtests.test(msg=name):
            with pytest.raises(BadCursor, match="next_cursor") as caught:
                cursor_decode("keys:acme", MADE_UP[name], key=KEY)
            assert caught.value.field == "cursor"


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        cursor_decode("keys:acme", text, key=KEY)
