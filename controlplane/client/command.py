"""Shared by the commands that use a control plane: their options, and the session they run in."""

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from controlplane.client import amounts
from controlplane.client.tables import Paper

if TYPE_CHECKING:  # a command without REST loads no HTTP
    from controlplane.client.rest import Rest

WAIT_SECONDS = "600"
FILE_HELP = "YAML or JSON; - reads standard input"
Options = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Options) -> Options:
    """Combine several options that more than one command has."""
    return lambda function: functools.reduce(lambda decorated, option: option(decorated), reversed(options), function)


yes_option = click.option("--yes", is_flag=True, help="do not ask")
json_option = click.option("--json", "as_json", is_flag=True, help="for programs")
namespace_argument = click.argument("place", help="acme/chat")
wait_options = together(
    click.option("--wait", is_flag=True, help="until every agent has sent its receipt"),
    click.option("--timeout", type=amounts.seconds, default=WAIT_SECONDS, help="wait no longer than this (600)"),
)
org_argument = click.argument("org")


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command: its connection, its console and its format of output."""

    rest: "Rest"
    paper: Paper
    as_json: bool

    def show(self, answer: Any, *lines: str) -> None:
        """Print the answer for programs, or the lines for people."""
        if not self.is_json(answer):
            self.paper.say(*lines)

    def is_json(self, answer: Any) -> bool:
        """Return whether the output is for a program. If so, print the answer; the command prints nothing more."""
        if self.as_json:
            self.paper.json(answer)
        return self.as_json


def rest_command(function: Callable[..., int | None]) -> click.Command:
    """Make a command that gets a session before its own options."""

    @click.option("--url", help="the control plane; else LUMINET_URL, or the stack that runs from here")
    @click.option("--insecure", is_flag=True, help="send the token in clear over http")
    @json_option
    @functools.wraps(function)
    def run(url: str | None, insecure: bool, as_json: bool, **options: Any) -> int | None:
        from controlplane.client.session import connect

        with closing(connect(url, insecure=insecure)) as rest:
            return function(Session(rest, Paper(), as_json), **options)

    return click.command(run)


def at_most_one(*options: str, required: bool = False) -> Callable[[click.Command], click.Command]:
    """Allow at most one of these options of the command; `required`: exactly one."""

    def restrict(command: click.Command) -> click.Command:
        names = {param.opts[0]: param.name or "" for param in command.params}
        run = command.callback or (lambda **values: None)

        def checked(**values: Any) -> Any:
            used_options = [option for option in options if values[names[option]] not in (None, False)]
            if len(used_options) > 1:
                raise click.UsageError(f"{' and '.join(used_options)}: give one of them", click.get_current_context())
            if required and not used_options:
                raise click.UsageError(f"give one of {', '.join(options)}", click.get_current_context())
            return run(**values)

        command.callback = checked
        return command

    return restrict
