"""Reads from a request's body which engines may serve it. The body is forwarded unchanged, except that the contents of
`extra_body` are merged in: not every engine reads that field.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_agent.http.errors import invalid
from engine_agent.http.extra_body import EXTRA_BODY, merge_extra_body
from engine_agent.http.strict_json import read_object

LIGHT_BYTES, LIGHT_VALUES, LIGHT_COMMAS = 524_288, 2_000, 30_000  # parsed in a millisecond or two
MOST_THREADS = 2


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    kv_dtype: str | None  # None: the policy's format
    body: bytes = field(repr=False)
    told: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the parsed body
    is_light: bool = field(default=False, compare=False)  # cheap to parse, however long its texts are


def is_light(body: bytes) -> bool:
    """Return whether a body parses fast enough for the event loop. A thread would hold the GIL just as long."""
    return (
        len(body) <= LIGHT_BYTES
        and body.count(b"{") + body.count(b"[") <= LIGHT_VALUES
        and body.count(b",") <= LIGHT_COMMAS
    )


def asked_read(body: bytes, light: bool | None = None) -> Asked:
    """Parse a body. `light`: the result of `is_light`, if known. Raise ApiError if the body is invalid."""
    fields = read_object(body)
    if EXTRA_BODY in fields:
        fields = merge_extra_body(fields)
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    model, kv_dtype = fields.get("model"), fields.get("kv_cache_dtype")
    if not isinstance(model, str):
        raise invalid("model", "is missing" if model is None else "must be text")
    if kv_dtype is not None and not isinstance(kv_dtype, str):
        raise invalid("kv_cache_dtype", "must be text")
    return Asked(model, kv_dtype, body, fields, is_light(body) if light is None else light)


class Reader:
    """Parses a body of many values in a thread, so that other requests' tokens keep flowing."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(MOST_THREADS)

    async def read(self, body: bytes) -> Asked:
        """Raise ApiError if the body is invalid."""
        if is_light(body):
            return asked_read(body, True)
        async with self._threads:
            return await asyncio.to_thread(asked_read, body, False)
