"""Every command of `luminet` with its purpose and its module, which is imported only when the command runs."""

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from controlplane.client.errors import ClientError
from controlplane.commands.standalone import STANDALONE, Standalone

# Name → location and purpose. A location is a module below `controlplane`, whose function is named after the path
# (`rollout_pause`), or a mapping of subcommands. A `Standalone` parses its own arguments.
Commands: TypeAlias = Mapping[str, "Standalone | tuple[str | Commands, str]"]

LOCAL: Final[Commands] = {
    "stack": (
        {
            "up": ("commands.local", "start PostgreSQL, Redis, web, worker and beat; stop with Ctrl-C"),
            "status": ("commands.local", "list what runs"),
            "down": ("commands.local", "stop the stack that runs from this folder"),
            "clean": ("commands.local", "delete this stack's data, logs and secrets"),
            "prepare": ("commands.local", "migrate, collect static files, seed the demo (`up` does this)"),
        },
        "the embedded stack of this machine",
    ),
    "run": ("commands.local", "run one part of the control plane in this process"),
    "health": ("commands.local", "ask one part whether it does its work; status 1 when not"),
    "migrations": ("commands.local", "show what `run migrate` would do, and who waits; 2: something is to come"),
    "secrets": ("commands.local", "print a fresh set of production secrets for an .env file"),
    "create-operator": ("commands.local", "create a person who runs the fleet, or make one of an account"),
    "operator-token": ("commands.local", "create an operator's token and print it once"),
    "reset-link": ("commands.local", "print a link that sets a new password, once"),
    "rotate-master-key": ("commands.local", "encrypt everything anew under the present master key"),
    "backup": ("commands.local", "write the control plane's database into a file, while everything runs"),
    "restore": ("commands.local", "bring a backup back, so that the fleet takes it up"),
    "audit": (
        {
            "verify": ("commands.local", "name the first changed or missing record; status 1 when there is one"),
            "export": ("commands.local", "print every record as a line of JSON, oldest first"),
        },
        "the audit trail",
    ),
}
REMOTE: Final[Commands] = {
    "plan": ("client.configs", "show what a file would change; status 2 when something would"),
    "apply": ("client.configs", "apply a file or a reviewed plan, as a whole or not at all"),
    "export": ("client.configs", "print the configuration as a file that changes nothing"),
    "schema": ("client.configs", "print the JSON Schema of such files, for editors"),
    "get": ("client.reading", "show what there is"),
    "stats": ("client.stats", "show what was counted: hit rate, requests, tokens, what was saved"),
    "whoami": ("client.reading", "show who the token speaks for, and what it may do"),
    "rollback": ("client.changing", "publish again what an earlier revision said"),
    "purge": ("client.changing", "let nothing cached so far match any more"),
    "create": (
        {
            "org": ("client.changing", "create an organisation"),
            "namespace": ("client.changing", "create a namespace"),
            "group": ("client.changing", "create an agent group"),
            "key": ("client.changing", "create an API key and print its secret once"),
            "member": ("client.changing", "invite somebody and print the link once"),
            "alert-rule": ("client.alerts", "make a rule by which there are alerts"),
        },
        "create one thing",
    ),
    "delete": (
        {
            "org": ("client.changing", "delete an organisation with all it has"),
            "namespace": ("client.changing", "delete a namespace"),
            "key": ("client.changing", "revoke an API key"),
            "member": ("client.changing", "remove a member"),
            "agent": ("client.fleet", "take an agent out of the fleet"),
            "alert-rule": ("client.alerts", "delete an alert rule that somebody made"),
        },
        "delete one thing",
    ),
    "join-token": (
        {
            "create": ("client.fleet", "create a token that agents join with, and print it once"),
            "revoke": ("client.fleet", "let nobody join with it any more"),
        },
        "tokens that agents join with",
    ),
    "drain": ("client.fleet", "send an agent nothing new, and let it finish"),
    "resume": ("client.fleet", "send a drained agent requests again"),
    "rollout": (
        {
            "pause": ("client.fleet", "reach nobody else until it is resumed"),
            "resume": ("client.fleet", "let it go on"),
            "promote": ("client.fleet", "go to the next step now, whatever its guards say"),
            "abort": ("client.fleet", "take it back: publish what was in force before, to all at once"),
        },
        "steer a policy on its way to the agents",
    ),
    "set-prices": ("client.prices", "change what tokens cost, from today or a later day on"),
    "invoice": ("client.invoices", "show what an organisation's requests came to"),
    "what-if": (
        "client.whatif",
        "foretell a namespace's hit rate, memory and money under another time to live or limit",
    ),
    "demo-traffic": (
        {
            "start": ("client.demo_traffic", "let it send from now on, over restarts too"),
            "stop": ("client.demo_traffic", "let it send nothing from now on, over restarts too"),
            "status": ("client.demo_traffic", "say whether it is here, and what it does"),
        },
        "the traffic of the demo, which this control plane may have",
    ),
    "acknowledge": ("client.alerts", "say that you look after an alert"),
    "silence": ("client.alerts", "send nothing of an alert for a while"),
    "set-alert-rule": ("client.alerts", "change an alert rule, or switch it on or off"),
}
HERE: Final[Commands] = {
    **STANDALONE,
    "calc": ("client.calc", "count what a model's KV cache takes in each format, and what fits where"),
    "completion": ("commands.local", "print the script that completes commands in a shell"),
}
SECTIONS: Final = {"Over the REST API": REMOTE, "Beside the database": LOCAL, "On this machine": HERE}
_OPTION_LINE = re.compile(r"^  (-.*?)(?:  |$)", re.MULTILINE)  # options in a help by argparse
_OPTION_NAME = re.compile(r"(?<!\S)--?[a-z][a-z-]*")


class Group(click.Group):
    """A group that lists its commands without importing them."""

    def __init__(self, path: tuple[str, ...], about: str, sections: Mapping[str, Commands], **options: Any) -> None:
        super().__init__(path[-1] if path else "luminet", help=_sentence(about), **options)
        self.path = path
        self.sections = sections
        self.entries = {name: entry for commands in sections.values() for name, entry in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry, Standalone):
            return Door(cmd_name, help=_sentence(entry.about), module=entry.module)
        (target, about), path = entry, (*self.path, cmd_name)
        if not isinstance(target, str):
            return Group(path, about, {"Commands": target})
        module = importlib.import_module(f"controlplane.{target}")
        command: click.Command = getattr(module, "_".join(path).replace("-", "_"))
        command.name, command.help = cmd_name, _sentence(about)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.entries))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), _about(entry)) for name, entry in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.entries if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_about(self.entries[name])) for name in names), *options]


class Door(click.Command):
    """Stands for a `Standalone` command, so that it is listed and completed."""

    def __init__(self, name: str, *, module: str, **options: Any) -> None:
        super().__init__(name, add_help_option=False, **options)
        self.module = module

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> Any:
        return importlib.import_module(self.module).main(ctx.args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if not incomplete.startswith("-"):
            return []
        return [CompletionItem(option) for option in self._options() if option.startswith(incomplete)]

    def _options(self) -> Iterator[str]:
        try:
            parser = importlib.import_module(self.module).parser()
        except ModuleNotFoundError:  # without its packages it cannot run here either
            return
        for names in _OPTION_LINE.findall(parser.format_help()):
            yield from _OPTION_NAME.findall(names)


def top() -> Group:
    """Return the whole command tree."""
    context_settings = {"help_option_names": ["-h", "--help"]}
    group = Group((), "run and operate Luminet", SECTIONS, context_settings=context_settings)
    option = click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version_print)
    return option(group)


def run(words: list[str]) -> int:
    """Run the command line and return its exit status: 1 for a mistyped command, because 2 is a result of `plan`."""
    try:
        return top().main(words, "luminet", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "luminet"
        message = " ".join(error.format_message().split())
        end = "" if message.endswith((".", "?")) else "."
        print(f"{command}: {message}{end} See {command} --help", file=sys.stderr)
    except ClientError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return error.exit_status
    except click.Abort as interrupted:
        raise KeyboardInterrupt from interrupted
    return 1


def _version_print(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from controlplane.common.version import version  # reads the metadata of installed packages

        print(f"luminet {version()}")
        context.exit()


def _about(entry: "Standalone | tuple[str | Commands, str]") -> str:
    return entry[-1]


def _sentence(about: str) -> str:
    return about[0].upper() + about[1:] + "."
