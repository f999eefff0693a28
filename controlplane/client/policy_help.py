"""The policy fields as the help of commands lists them: what a file may set."""

from engine_agent.contracts.policy_fields import FIELDS


def policy_fields_help() -> str:
    """A line for each field: its name in files and in REST, its label on pages, its values."""
    width = max(map(len, FIELDS))
    lines = (f"  {name:<{width}}  {field.label} ({field.values})" for name, field in FIELDS.items())
    return "\n".join(("policy fields:", *lines))
