"""What each API key asked, in words."""

from typing import Any
from uuid import UUID

import pytest

from controlplane.dashboard.analytics import facts, key_parts

ID = UUID("0192f3a0-7d1c-4c3e-9a55-4f6f2f0e8d11")


def part(name: str | None, prompt: int, **more: Any) -> dict[str, Any]:
    counts = {"requests": 1, "prompt_tokens": prompt, "cached_tokens": prompt // 2}
    return {"id": ID, "name": name, "prefix": name and f"lmk_{name}", "is_revoked": False, **counts, **more}


LEFT = part(None, 50, id=None)


@pytest.mark.parametrize(
    ("found", "title"),
    [
        ([], "none"),
        ([part("a", 0)], "none"),
        ([part("a", 9)], "All prompt tokens came with a"),
        ([LEFT], "Of no request a key is known"),
        ([part("a", 30), part("b", 20), LEFT], "30 % of the prompt tokens came with a, of 2 keys that asked"),
        (
            [part(None, 50), LEFT],
            "50 % of the prompt tokens came with a key that is gone altogether, of 1 key that asked",
        ),
    ],
)
def test_the_title_says_which_key_most_tokens_came_with(found: list[dict[str, Any]], title: str) -> None:
    assert key_parts.title(found, nothing="none") == title


def test_rows_say_which_key_by_its_prefix_and_what_is_left_over_comes_last() -> None:
    found = [LEFT, part("b", 20, is_revoked=True), part("a", 10), part(None, 5, is_revoked=True)]
    shown = facts.rows_of(key_parts.parts(found), "key", nothing="none", title="t")
    assert [(name, key["note"]) for name, key in shown.rows] == [
        ("a", "lmk_a…"),
        ("a key that is gone altogether", "revoked"),
        ("b", "lmk_b…, revoked"),
        ("No key is known", ""),
    ]
    assert shown.title == "t"
