"""Request traces: JSON lines as Mooncake publishes them, one request per line, without any text.

{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …], "namespace": "acme"}

`timestamp` is in milliseconds. `hash_ids` has an id for each block of the prompt; equal ids mean equal blocks after
equal prefixes. A rest that fills no block may have an id or not. `namespace` may be missing, other fields are ignored.
"""

import json
import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine_agent.tools.errors import ToolError

DEFAULT_NAMESPACE = "default"
LARGEST_ID = 2**62 - 1
MOST_TOKENS = 2**31 - 1
SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Request:
    at_seconds: float
    input_tokens: int
    output_tokens: int
    hash_ids: "array[int]"
    namespace: str = DEFAULT_NAMESPACE


def read_trace(lines: Iterable[str], *, block_tokens: int, head: int | None = None) -> list[Request]:
    """Return the requests of the first `head` lines, sorted by time. Raises ToolError."""
    requests: list[Request] = []
    for number, line in enumerate(lines, 1):
        if head is not None and len(requests) >= head:
            break
        if line.strip():
            requests.append(_request(number, line, block_tokens))
    if not requests:
        raise ToolError("there is no request in it")
    requests.sort(key=lambda request: request.at_seconds)  # stable: lines with the same time stay in order
    return requests


def _request(number: int, line: str, block_tokens: int) -> Request:
    fields = _fields(number, line)
    input_tokens = _whole(number, fields, "input_length", least=1)
    return Request(
        at_seconds=_milliseconds(number, fields) / 1000,
        input_tokens=input_tokens,
        output_tokens=_whole(number, fields, "output_length", least=0),
        hash_ids=_hash_ids(number, fields, input_tokens, block_tokens),
        namespace=_namespace(number, fields),
    )


def _fields(number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise _bad(number, "line", f"is no JSON: {problem}"[:200]) from problem
    if not isinstance(fields, dict):
        raise _bad(number, "line", f"expected an object, found {_shown(fields)}")
    return fields


def _milliseconds(number: int, fields: dict[str, Any]) -> float:
    milliseconds = _given(number, fields, "timestamp")
    if not _is_number(milliseconds) or not 0 <= milliseconds < math.inf:
        raise _bad(number, "timestamp", f"expected milliseconds from 0, found {_shown(milliseconds)}")
    return float(milliseconds)


def _whole(number: int, fields: dict[str, Any], name: str, *, least: int) -> int:
    count = _given(number, fields, name)
    if not _is_whole(count) or not least <= count <= MOST_TOKENS:
        raise _bad(number, name, f"expected tokens, from {least} to {MOST_TOKENS}, found {_shown(count)}")
    return int(count)


def _hash_ids(number: int, fields: dict[str, Any], input_tokens: int, block_tokens: int) -> "array[int]":
    hash_ids = _given(number, fields, "hash_ids")
    full, rest = divmod(input_tokens, block_tokens)
    if not isinstance(hash_ids, list):
        raise _bad(number, "hash_ids", f"expected a list, found {_shown(hash_ids)}")
    most = full + (rest > 0)
    if not full <= len(hash_ids) <= most:
        expected = f"expected {most} ids for {input_tokens} tokens in blocks of {block_tokens}"
        raise _bad(number, "hash_ids", f"{expected}, found {len(hash_ids)}")
    for index, hash_id in enumerate(hash_ids):
        if not _is_whole(hash_id) or not 0 <= hash_id <= LARGEST_ID:
            raise _bad(number, f"hash_ids[{index}]", f"expected a number from 0 to 2^62 - 1, found {_shown(hash_id)}")
    return array("Q", hash_ids)


def _namespace(number: int, fields: dict[str, Any]) -> str:
    namespace = fields.get("namespace", DEFAULT_NAMESPACE)
    if not isinstance(namespace, str) or not 0 < len(namespace) <= 100 or not namespace.isprintable():
        raise _bad(number, "namespace", f"expected a name of up to 100 characters, found {_shown(namespace)}")
    return namespace


def _given(number: int, fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise _bad(number, name, "is missing")
    return fields[name]


def _bad(line: int, field: str, problem: str) -> ToolError:
    return ToolError(f"line {line}", field, problem)


def _is_whole(raw: object) -> bool:
    return isinstance(raw, int) and not isinstance(raw, bool)


def _is_number(raw: object) -> bool:
    return isinstance(raw, int | float) and not isinstance(raw, bool)


def _shown(raw: object) -> str:
    text = ascii(raw)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
