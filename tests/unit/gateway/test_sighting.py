"""Which session a request is of: as its body calls it, within its namespace."""

import pytest

from engine_agent.gateway.sighting import session_of


def test_a_session_is_what_the_cache_key_says_and_else_the_user() -> None:
    named = session_of("11", {"prompt_cache_key": "chat-1", "user": "ann"})
    assert named == session_of("11", {"prompt_cache_key": "chat-1", "user": "bob"})
    assert named != session_of("11", {"user": "ann"}) == session_of("11", {"prompt_cache_key": "", "user": "ann"})


def test_another_namespaces_session_of_the_same_name_is_another() -> None:
    assert session_of("11", {"user": "ann"}) != session_of("12", {"user": "ann"})


@pytest.mark.parametrize("told", [None, 7, "", ["ann"], {"a": 1}])
def test_what_is_no_name_is_no_session(told: object) -> None:
    assert session_of("11", {"user": told}) is None
    assert session_of("11", {}) is None


def test_any_text_is_a_name() -> None:
    assert session_of("11", {"user": "\ud800"})
