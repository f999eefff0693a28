"""Who is known at the door is known as the database said a moment ago, or not at all."""

from dataclasses import replace

from controlplane.fleet.known_agents import AgentNow
from controlplane.fleet.roster import BELIEVED_SECONDS, REMEMBERED_SECONDS, Roster

AGENT = AgentNow("agent-1", "engine", 1, b"token", False, "h1", 1, "s", 5)


def roster() -> Roster:
    known = Roster()
    known.put(AGENT, read_at=0.0, heard_at=0.0)
    return known


def test_an_agent_is_known_by_its_token() -> None:
    assert roster().find(b"token", now=1.0) == AGENT
    assert roster().find(b"other", now=1.0) is None


def test_what_was_read_too_long_ago_is_not_believed() -> None:
    assert roster().find(b"token", now=BELIEVED_SECONDS + 0.1) is None


def test_a_revoked_agent_is_not_known_any_more() -> None:
    known = roster()
    known.refresh(["agent-1"], [replace(AGENT, is_revoked=True)], now=1.0)
    assert known.find(b"token", now=1.0) is None
    assert len(known) == 0


def test_an_agent_that_is_gone_is_not_known_any_more() -> None:
    known = roster()
    known.refresh(["agent-1"], [], now=1.0)
    assert known.get("agent-1") is None


def test_who_came_while_the_others_were_read_is_left_alone() -> None:
    known = roster()
    known.refresh(["agent-2"], [], now=1.0)
    assert known.find(b"token", now=1.0) == AGENT


def test_a_token_that_was_replaced_is_not_known_any_more() -> None:
    known = roster()
    known.refresh(["agent-1"], [replace(AGENT, token_hash=b"next")], now=1.0)
    assert known.find(b"token", now=1.0) is None
    known.put(AGENT, read_at=1.0, heard_at=1.0)
    known.put(replace(AGENT, token_hash=b"next"), read_at=2.0, heard_at=2.0)
    assert known.find(b"token", now=2.0) is None
    assert known.find(b"next", now=2.0) is not None


def test_an_agent_that_has_been_silent_for_long_is_forgotten() -> None:
    known = roster()
    known.refresh(["agent-1"], [AGENT], now=REMEMBERED_SECONDS - 1)
    assert known.find(b"token", now=REMEMBERED_SECONDS - 1) == AGENT
    known.refresh(["agent-1"], [AGENT], now=2 * REMEMBERED_SECONDS - 2)
    assert known.ids() == ["agent-1"]
    known.refresh(["agent-1"], [AGENT], now=2 * REMEMBERED_SECONDS)
    assert known.ids() == []


def test_news_are_known_at_once_and_an_older_reading_does_not_undo_them() -> None:
    known = roster()
    known.acknowledged("agent-1", spool="s", number=9, desired_hash="h2", desired_generation=2)
    known.refresh(["agent-1"], [replace(AGENT, number=7, desired_hash="h2", desired_generation=2)], now=1.0)
    assert known.find(b"token", now=1.0) == replace(AGENT, number=9, desired_hash="h2", desired_generation=2)
    known.refresh(["agent-1"], [replace(AGENT, spool="new", number=1)], now=2.0)
    assert known.get("agent-1") == replace(AGENT, spool="new", number=1)
