from controlplane.rollouts.remembered import Remembered


def remembered(*keys: str, most: int = 2) -> Remembered[str, str]:
    made: Remembered[str, str] = Remembered(most)
    for key in keys:
        made.put(key, key.upper())
    return made


def test_what_was_put_is_found_until_there_is_too_much() -> None:
    made = remembered("a", "b", "c")
    assert [made.get(key) for key in "abc"] == [None, "B", "C"]


def test_what_was_used_least_recently_goes_first() -> None:
    made = remembered("a", "b")
    made.get("a")
    made.put("c", "C")
    assert [made.get(key) for key in "abc"] == ["A", None, "C"]


def test_the_newest_value_counts() -> None:
    made = remembered("a", "b")
    made.put("a", "again")
    made.put("c", "C")
    assert [made.get(key) for key in "abc"] == ["again", None, "C"]


def test_room_only_ever_grows() -> None:
    made = remembered("a", "b")
    made.make_room(3)
    made.make_room(1)
    made.put("c", "C")
    assert [made.get(key) for key in "abc"] == ["A", "B", "C"]
