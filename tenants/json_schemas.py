"""JSON Schemas as clients need them. Pure."""

import json
from typing import Any


def defaults_described(schema: dict[str, Any], sentence: str = "Default: {}.") -> None:
    """Moves each member's `default` into its description.

    Generated clients send a default they know, so that a field left out is sent all the same.
    """
    for member in schema.get("properties", {}).values():
        default = member.pop("default", None)
        if default not in (None, "") and not isinstance(default, dict):
            words = sentence.format(f"`{json.dumps(default)}`")
            member["description"] = " ".join(filter(None, [member.get("description"), words]))
