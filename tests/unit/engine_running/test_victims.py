"""Who gives way when a block is missing."""

from engine_agent.engine.victims import Holder, victim


def holder(
    key: str,
    namespace: str = "one",
    *,
    rank: float = 0,
    used: int = 100,
    reserved: int = 0,
    weight: float = 1.0,
    is_customer: bool = True,
) -> Holder[str]:
    return Holder(key, namespace, is_customer, (rank,), used, reserved, weight)


def chosen(asking: Holder[str], *others: Holder[str], is_own_limit: bool = False) -> str:
    return victim([asking, *others], asking, is_own_limit=is_own_limit).key


def test_in_one_namespace_the_last_to_come_gives_way() -> None:
    assert chosen(holder("first", rank=1), holder("second", rank=2), holder("third", rank=3)) == "third"


def test_the_one_that_asks_gives_way_if_it_came_last() -> None:
    assert chosen(holder("late", rank=9), holder("early", rank=1)) == "late"


def test_the_namespace_that_uses_most_for_its_weight_gives_way() -> None:
    asking = holder("small", "quiet", used=10)
    assert chosen(asking, holder("large", "noisy", used=1000), holder("middle", "other", used=100)) == "large"
    assert chosen(asking, holder("large", "noisy", used=1000, weight=100), holder("middle", "other")) == "middle"


def test_whoever_is_within_its_reservation_never_gives_way_to_another() -> None:
    asking = holder("asking", "noisy", used=50)
    assert chosen(asking, holder("safe", "paying", used=1000, reserved=1000)) == "asking"


def test_at_its_own_limit_a_namespace_takes_from_itself_alone() -> None:
    asking = holder("asking", "limited", rank=1)
    own = holder("own", "limited", rank=2)
    assert chosen(asking, own, holder("other", "large", used=10_000), is_own_limit=True) == "own"


def test_a_pins_warm_up_gives_way_before_any_customer() -> None:
    asking = holder("customer", used=1000, rank=5)
    assert chosen(asking, holder("pin", "other", used=10, is_customer=False)) == "pin"
