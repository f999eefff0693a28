"""As many bytes are remembered as may be, and what was used last stays."""

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.knowing.remembering import BESIDE_BYTES, Remembered


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=40))
def test_never_more_than_may_be(puts: list[tuple[int, int]]) -> None:
    found: Remembered[int, int] = Remembered(2_000)
    for key, size in puts:
        found.put(key, size, size)
        assert found.held_bytes <= 2_000
        assert found.get(key) == size
    assert found.held_bytes == sum(value + BESIDE_BYTES for value, _ in found._held.values())


def test_what_was_asked_for_last_stays() -> None:
    found: Remembered[str, int] = Remembered(2 * BESIDE_BYTES)
    found.put("a", 1, 0)
    found.put("b", 2, 0)
    assert found.get("a") == 1
    found.put("c", 3, 0)
    assert (found.get("a"), found.get("b"), found.get("c")) == (1, None, 3)


def test_what_alone_is_too_large_is_not_kept() -> None:
    found: Remembered[str, int] = Remembered(1_000)
    found.put("a", 1, 2_000)
    assert len(found) == 0
