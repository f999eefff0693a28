"""The `luminet` command inside the process of a test."""

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import click

from controlplane import cli
from controlplane.commands.standalone import STANDALONE
from controlplane.commands.tree import Group, top
from controlplane.doctor.command import parser as doctor_parser


def luminet(arguments: Sequence[str]) -> int:
    """Run one command as its program does, and return its status."""
    return cli.main(arguments)


def understood(arguments: Sequence[str]) -> dict[str, Any]:
    """Return what a command would be given; SystemExit where it is mistyped.

    Of the data plane's commands that is `arguments`: their own parsers read them.
    """
    if arguments and arguments[0] == "doctor":
        return vars(doctor_parser().parse_args(arguments[1:]))
    if arguments and arguments[0] in STANDALONE:
        return {"arguments": list(arguments[1:])}
    given: dict[str, Any] = {}

    def take(command: click.Command, context: click.Context) -> None:
        given.update(context.params)

    with patch.object(click.Command, "invoke", take):
        if status := cli.main(arguments):
            raise SystemExit(status)
    return given


def commands(group: Group | None = None, path: str = "luminet") -> Iterator[str]:
    """Every command there is, spelled out."""
    group = group or top()
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"
