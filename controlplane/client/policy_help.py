"""The list of policy fields in the help of commands that take a file."""

import click

from engine_agent.contracts.policy_fields import FIELDS


def policy_fields_help() -> str:
    """Return a line for each field: its name in files and REST, its label on pages, its values."""
    width = max(map(len, FIELDS))
    lines = (f"  {name:<{width}}  {field.label} ({field.values})" for name, field in FIELDS.items())
    return "\n".join(("policy fields:", *lines))


def with_policy_fields(command: click.Command) -> click.Command:
    """End the command's help with the list of policy fields."""
    command.epilog = f"\b\n{policy_fields_help()}"  # click does not wrap a paragraph that begins so
    return command
