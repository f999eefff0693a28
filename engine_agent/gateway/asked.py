"""Of a request's body, what decides where it goes. The engine gets it as it came, and understands the rest."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_agent.http.errors import invalid
from engine_agent.http.strict_json import read_object

SMALL_BODY_BYTES = 65_536  # is read in a millisecond or two; others can wait for that
MOST_THREADS = 2


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    kv_dtype: str | None  # None: the policy's
    body: bytes = field(repr=False)
    told: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what the body says


def asked_read(body: bytes) -> Asked:
    """Raises ApiError."""
    told = read_object(body)
    model, kv_dtype = told.get("model"), told.get("kv_cache_dtype")
    if not isinstance(model, str):
        raise invalid("model", "is missing" if model is None else "must be text")
    if kv_dtype is not None and not isinstance(kv_dtype, str):
        raise invalid("kv_cache_dtype", "must be text")
    return Asked(model, kv_dtype, body, told)


class Reader:
    """A large body is read in a thread, so that others' tokens flow meanwhile."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(MOST_THREADS)

    async def read(self, body: bytes) -> Asked:
        """Raises ApiError."""
        if len(body) <= SMALL_BODY_BYTES:
            return asked_read(body)
        async with self._threads:
            return await asyncio.to_thread(asked_read, body)
