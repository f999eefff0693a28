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


async def sees_of(prefix_index: Knowing | None, caller: Caller, request: Asked, path: str) -> Sees:
    session = session_of(caller.namespace.id, request.told)
    prompt = None if prefix_index is None else await prefix_index.prompt(caller, request, path)
    if prefix_index is None or prompt is None:
        blind = Sight(session=session)
        return lambda: blind
    index, known_prompt = prefix_index, prompt
    return lambda: Sight(
        index.matches(known_prompt),
        known_prompt.known_tokens,
        session or known_prompt.beginning or None,
        is_countable=known_prompt.is_only,
    )


def session_of(namespace: str, fields: Mapping[str, Any]) -> bytes | None:
    """Return a digest of the session that the body names, specific to its namespace, or None."""
    for name in SESSION_FIELDS:
        session_name = fields.get(name)
        if isinstance(session_name, str) and session_name:
            return blake2b(f"{namespace}\0{session_name}".encode(errors="replace"), digest_size=16).digest()
    return None
