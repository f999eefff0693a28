"""Parses a body as an object with one meaning, or raises an error in OpenAI's format."""

import json
from typing import Any

from engine_agent.contracts.strict_json import Path, UnsafeJson, loads
from engine_agent.http.errors import invalid

_LONGEST_PARAM = 80


def read_object(body: bytes) -> dict[str, Any]:
    """Return the object in `body`, or raise an ApiError that names the problem and, if possible, the field."""
    try:
        value = loads(body.decode())
    except UnicodeDecodeError as error:
        raise invalid(None, f"The body is not UTF-8 at byte {error.start}.", "invalid_json") from None
    except json.JSONDecodeError as error:
        problem = f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise invalid(None, problem, "invalid_json") from None
    except UnsafeJson as error:
        raise invalid(_param(error.path[:-1] if error.is_name else error.path), error.message, "invalid_json") from None
    except (ValueError, RecursionError):  # Python's own limits to the digits of a number and to nesting
        raise invalid(None, "The body has too long a number, or is nested too deeply.", "invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")
    return value


def _param(path: Path) -> str | None:
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return ascii(where[:_LONGEST_PARAM])[1:-1] or None


def is_nested_deeper(value: Any, most: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(children) and (most == 0 or any(is_nested_deeper(child, most - 1) for child in children))
