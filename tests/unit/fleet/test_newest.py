"""Of heartbeats only the newest is worth anything."""

from datetime import UTC, datetime

from controlplane.fleet.heartbeats import Beat, Newest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def beat(sequence: int, *, boot: str = "b1", agent: str = "agent-1") -> Beat:
    return Beat(agent, {"boot": boot, "sequence": sequence}, NOW, 0.0)


def test_the_newest_of_each_agent_is_kept() -> None:
    newest = Newest()
    for one in (beat(2), beat(1), beat(2), beat(7, agent="agent-2")):
        newest.offer(one)
    assert newest.take() == {"agent-1": beat(2), "agent-2": beat(7, agent="agent-2")}
    assert not newest


def test_a_new_boot_counts_from_the_beginning() -> None:
    newest = Newest()
    newest.offer(beat(9))
    newest.offer(beat(1, boot="b2"))
    assert newest.take() == {"agent-1": beat(1, boot="b2")}


def test_what_could_not_be_written_waits_unless_there_is_a_newer_one() -> None:
    newest = Newest()
    newest.offer(beat(3))
    newest.put_back([beat(2), beat(5, agent="agent-2")])
    assert newest.take() == {"agent-1": beat(3), "agent-2": beat(5, agent="agent-2")}
