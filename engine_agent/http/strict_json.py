"""JSON with one meaning for every document: no key twice, no number that is none, no half of a character."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from engine_agent.http.errors import invalid

# Raw surrogates do not get past UTF-8, so only escapes can bring them in; they come in pairs, or are refused.
_RISKY_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_object(body: bytes) -> dict[str, Any]:
    """The object that `body` stands for, or an ApiError naming what is wrong and, where it can, the field."""
    try:
        text = body.decode()
        value = _DECODER.decode(text)
        half = next(_halves("", value), None) if _RISKY_ESCAPE.search(text) else None
    except UnicodeDecodeError as error:
        raise invalid(None, f"The body is not UTF-8 at byte {error.start}.", "invalid_json") from None
    except json.JSONDecodeError as error:
        problem = f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise invalid(None, problem, "invalid_json") from None
    except (ValueError, RecursionError):  # Python's own limits to the digits of a number and to nesting
        raise invalid(None, "The body has too long a number, or is nested too deeply.", "invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")
    if half is not None:
        raise invalid(half or None, "contains half of a surrogate pair", "invalid_json")
    return value


def is_nested_deeper(value: Any, most: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(children) and (most == 0 or any(is_nested_deeper(child, most - 1) for child in children))


def _halves(where: str, value: Any) -> Iterator[str]:
    """Where texts are that UTF-8 cannot say. Keys as well: they are shown in errors and to templates."""
    if isinstance(value, str):
        yield from [where] if _SURROGATE.search(value) else []
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _halves(f"{where}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from [where] if _SURROGATE.search(key) else _halves(f"{where}.{key}".lstrip("."), item)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise invalid(ascii(twice[:80])[1:-1], "is given more than once", "invalid_json")
    return members


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise invalid(None, f"The body has a number that is too large: {digits[:40]}.", "invalid_json")
    return number


def _constant(name: str) -> NoReturn:
    raise invalid(None, f"The body is not JSON: it has {name} for a number.", "invalid_json")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
