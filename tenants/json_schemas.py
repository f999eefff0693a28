"""JSON Schemas in the form that clients need. No I/O."""

import json
from typing import Any


def defaults_described(schema: dict[str, Any], sentence: str = "Default: {}.") -> None:
    """Move each member's `default` into its description.

    Otherwise generated clients would send the default for an omitted field.
    """
    for member in schema.get("properties", {}).values():
        default = member.pop("default", None)
        if default not in (None, "") and not isinstance(default, dict):
            sentence_with_default = sentence.format(f"`{json.dumps(default)}`")
            member["description"] = " ".join(filter(None, [member.get("description"), sentence_with_default]))
