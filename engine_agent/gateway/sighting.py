"""Collects the prefix hints for a request: how much of its prompt each engine has cached, and its session."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from engine_agent.gateway.asked import Asked
from engine_agent.gateway.keys import Caller
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.scoring import Sight

Sees = Callable[[], Sight]  # called for each attempt, because caches change meanwhile
SESSION_FIELDS = ("prompt_cache_key", "user")


async def sees_of(knowing: Knowing | None, caller: Caller, asked: Asked, path: str) -> Sees:
    session = session_of(caller.namespace.id, asked.told)
    prompt = None if knowing is None else await knowing.prompt(caller, asked, path)
    if knowing is None or prompt is None:
        blind = Sight(session=session)
        return lambda: blind
    known, read = knowing, prompt
    return lambda: Sight(
        known.matches(read), read.known_tokens, session or read.beginning or None, is_countable=read.is_only
    )


def session_of(namespace: str, told: Mapping[str, Any]) -> bytes | None:
    """Return a digest of the session that the body names, specific to its namespace, or None."""
    for name in SESSION_FIELDS:
        named = told.get(name)
        if isinstance(named, str) and named:
            return blake2b(f"{namespace}\0{named}".encode(errors="replace"), digest_size=16).digest()
    return None
