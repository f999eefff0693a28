"""Requests that wait for memory: in order, fairly, and nobody for ever."""

import pytest

from engine_agent.cache.errors import InvalidValue, NeverFits, SequenceReleased, UnknownNamespace, WaitingRoomFull
from engine_agent.cache.manager import Admitted
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.waiting import Waiting, WaitingRoom
from tests.unit.cache.making import World, prompt


class Room:
    """A waiting room over a pool of ten pages, with the names of who was admitted."""

    def __init__(self, *, pages: int = 10, most: int = 100, patience_seconds: float = 5) -> None:
        self.world = World(pages=pages)
        self.world.namespace("bolt", NamespacePolicy())
        self.room = WaitingRoom(self.world.manager, most=most, patience_seconds=patience_seconds)
        self.names: dict[int, str] = {}
        self.running: dict[str, Sequence] = {}

    def submit(
        self, label: str, blocks: int, name: str = "acme", *, priority: int = 0, since: float | None = None
    ) -> Admitted | Waiting:
        sequence = self.world.sequence(prompt(blocks, seed=len(self.names) + 1, extra=0), name)
        self.names[id(sequence)] = label
        self.running[label] = sequence
        return self.room.submit(sequence, priority=priority, since=since)

    def finish(self, *labels: str) -> list[str]:
        """Who runs next when these are done."""
        for label in labels:
            self.world.manager.release(self.running[label])
        return [self.names[id(sequence)] for sequence, _ in self.room.admit_waiting()]


def test_what_fits_runs_and_what_does_not_waits_its_turn() -> None:
    room = Room()
    assert isinstance(room.submit("a", 8), Admitted)
    assert room.submit("b", 6) == Waiting(ahead=0)
    assert room.submit("c", 2) == Waiting(ahead=1), "first come, first served within a namespace"
    assert len(room.room) == 2
    assert room.finish("a") == ["b", "c"]
    assert len(room.room) == 0


def test_a_small_request_of_another_overtakes_a_large_one_until_that_has_waited_too_long() -> None:
    room = Room()
    room.submit("a", 6)
    room.submit("large", 9)
    assert isinstance(room.submit("small", 2, "bolt"), Admitted)
    room.world.clock.advance(5)
    assert isinstance(room.submit("later", 2, "bolt"), Waiting)
    assert room.finish("small") == []
    assert room.finish("a") == ["large"]
    assert room.finish("large") == ["later"]


def test_between_namespaces_the_one_that_uses_least_goes_first() -> None:
    room = Room()
    room.submit("a1", 5)
    room.submit("a2", 5)
    room.submit("a3", 5)
    room.submit("b1", 5, "bolt")
    assert room.finish("a1") == ["b1"]
    assert room.finish("a2") == ["a3"]


def test_who_is_at_its_own_limit_holds_up_nobody() -> None:
    room = Room()
    room.world.namespace("acme", NamespacePolicy(limit_share=0.5))
    room.submit("a1", 4)
    room.submit("a2", 4)
    room.world.clock.advance(100)
    assert isinstance(room.submit("b1", 5, "bolt"), Admitted)
    assert room.finish("b1") == []
    assert room.finish("a1") == ["a2"]


def test_whoever_left_is_not_served() -> None:
    room = Room()
    room.submit("a", 8)
    room.submit("b", 8)
    room.submit("c", 8)
    assert room.room.withdraw(room.running["b"])
    assert not room.room.withdraw(room.running["b"])
    assert not room.room.withdraw(room.running["a"])
    assert room.finish("a") == ["c"]


def test_what_can_never_run_is_told_at_once_or_when_a_policy_made_it_so() -> None:
    room = Room()
    with pytest.raises(NeverFits):
        room.submit("too large", 11)
    assert len(room.room) == 0
    room.submit("a", 8)
    room.submit("b", 8)
    room.world.namespace("acme", NamespacePolicy(limit_share=0.5))
    room.world.manager.release(room.running["a"])
    [(sequence, answer)] = room.room.admit_waiting()
    assert room.names[id(sequence)] == "b"
    assert isinstance(answer, NeverFits)
    assert len(room.room) == 0


def test_a_full_room_says_so() -> None:
    room = Room(most=2)
    room.submit("a", 8)
    room.submit("b", 8)
    room.submit("c", 8)
    with pytest.raises(WaitingRoomFull, match="2 requests wait already"):
        room.submit("d", 8)
    assert isinstance(room.submit("e", 1, "bolt"), Admitted), "what fits needs no place"


@pytest.mark.parametrize(("field", "value"), [("most", 0), ("most", 1.5), ("patience_seconds", -1)])
def test_a_room_nobody_can_mean_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidValue) as refused:
        WaitingRoom(World().manager, **{field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_who_is_kept_out_by_others_pins_holds_up_nobody() -> None:
    room = Room()
    room.world.namespace("coil", NamespacePolicy(pin_share=0.9))
    room.world.run(prompt(6, seed=99), "coil")
    room.world.manager.pin("p", "coil", prompt(6, seed=99), kv_format="fp8", model_revision="m")
    assert isinstance(room.submit("big", 9), Waiting)
    room.world.clock.advance(100)
    assert isinstance(room.submit("small", 2, "bolt"), Admitted)
    room.world.manager.unpin("coil", "p")
    assert room.finish("small") == ["big"]


def test_a_namespace_that_went_takes_only_its_own_requests_with_it() -> None:
    room = Room()
    room.submit("a", 8)
    room.submit("b", 4, "bolt")
    room.submit("c", 4)
    room.world.manager.remove_namespace("bolt")
    room.world.manager.release(room.running["a"])
    answers = {room.names[id(sequence)]: type(answer) for sequence, answer in room.room.admit_waiting()}
    assert answers == {"b": UnknownNamespace, "c": Admitted}
    assert len(room.room) == 0


def test_one_request_waits_once() -> None:
    room = Room()
    room.submit("a", 8)
    room.submit("b", 8)
    for label in ("a", "b"):
        with pytest.raises(SequenceReleased):
            room.room.submit(room.running[label])
    assert room.finish("a") == ["b"]


def test_whoever_finds_its_prefix_meanwhile_need_not_wait_for_memory() -> None:
    room = Room()
    tokens = prompt(6, extra=1)
    first = room.world.sequence(tokens)
    second = room.world.sequence(tokens)
    assert isinstance(room.room.submit(first), Admitted)
    assert isinstance(room.room.submit(second), Waiting)
    room.world.manager.fill(first, len(tokens))
    assert [sequence for sequence, _ in room.room.admit_waiting()] == [second]


def test_in_a_namespace_the_lower_priority_number_goes_first_and_then_who_came_first() -> None:
    room = Room()
    room.submit("running", 9)
    assert room.submit("a", 2) == Waiting(ahead=0)
    assert room.submit("late", 2, priority=5) == Waiting(ahead=1)
    assert room.submit("b", 2) == Waiting(ahead=1)
    assert room.submit("urgent", 2, priority=-1) == Waiting(ahead=0)
    assert room.finish("running") == ["urgent", "a", "b", "late"]


def test_one_namespaces_priority_is_nothing_to_another() -> None:
    room = Room()
    room.submit("running", 5)
    room.submit("other", 5, "bolt")
    room.submit("a", 5, priority=-5)
    room.submit("b", 5, "bolt", priority=5)
    assert room.finish("other") == ["b"], "who uses least goes first, not who claims most"
    assert room.finish("running") == ["a"]


def test_who_goes_first_in_its_own_line_need_not_wait_behind_it() -> None:
    room = Room()
    room.submit("running", 6)
    room.submit("large", 9)
    assert isinstance(room.submit("small", 2), Waiting)
    assert isinstance(room.submit("urgent", 2, priority=-1), Admitted)
    room.world.clock.advance(10)
    assert isinstance(room.submit("as urgent", 2, priority=-1), Admitted), "it goes before it, however late that is"
    assert isinstance(room.submit("another's", 1, "bolt", priority=-9), Waiting), "this one does not"
    assert room.finish("running", "urgent", "as urgent")[0] == "large"


def test_who_ran_before_and_had_to_stop_stands_where_it_stood() -> None:
    room = Room()
    room.submit("running", 6)
    came = room.world.clock()
    room.submit("preempted", 4)
    room.world.clock.advance(1)
    room.submit("a", 5)
    room.world.manager.release(room.running["preempted"])
    assert room.submit("preempted again", 5, since=came) == Waiting(ahead=0)
    assert room.finish("running") == ["preempted again", "a"]
