"""The policy fields as the help of commands lists them: what a file may set."""

import click

from engine_agent.contracts.policy_fields import FIELDS


def policy_fields_help() -> str:
    """A line for each field: its name in files and in REST, its label on pages, its values."""
    width = max(map(len, FIELDS))
    lines = (f"  {name:<{width}}  {field.label} ({field.values})" for name, field in FIELDS.items())
    return "\n".join(("policy fields:", *lines))


def with_policy_fields(command: click.Command) -> click.Command:
    """A command that takes such a file: its help ends with the fields."""
    command.epilog = f"\b\n{policy_fields_help()}"  # click wraps no paragraph that begins so
    return command
