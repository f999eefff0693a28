"""Commands for the machine that runs a control plane: its stack, its processes, its database.

Imports are inside the commands: this module is also loaded to complete their options.
"""

import os
import sys
from collections.abc import Callable

import click

from controlplane.client.command import at_most_one, json_option, yes_option
from tenants.actor import REST_SCOPES, Scope

PARTS = ("web", "worker", "beat", "roles", "migrate", "demo-traffic")
HEALTH = ("web", "worker", "beat", "database", "broker", "demo-traffic")
SCOPES = tuple(scope.value for scope in Scope if scope in REST_SCOPES)  # scopes that an operator's token can have


@click.command
def stack_up() -> int:
    from controlplane.stack.doors import up

    return up()


@click.command
@json_option
def stack_status(as_json: bool) -> int:
    from controlplane.stack.doors import status

    return status(as_json=as_json)


@click.command
def stack_down() -> int:
    from controlplane.stack.doors import down

    return down()


@click.command
@yes_option
def stack_clean(yes: bool) -> int:
    from controlplane.stack.doors import clean

    return clean(asks=not yes)


@click.command
def stack_prepare() -> None:
    from controlplane.stack.prepare import prepare

    prepare()


@click.command
@click.argument("part", type=click.Choice(PARTS))
def run(part: str) -> None:
    from controlplane import serve

    serve.PARTS[part]()


@click.command
@click.argument("part", type=click.Choice(HEALTH))
def health(part: str) -> int:
    _beside_the_stack()
    from controlplane.common import health
    from controlplane.settings.env import read_environment_or_exit

    environment = read_environment_or_exit(os.environ)
    checks: dict[str, Callable[[], None]] = {
        "web": lambda: health.web_check(health.loopback_address(environment.web_host, environment.web_port)),
        "worker": lambda: health.worker_check(environment.redis_url, health.worker_hostname()),
        "beat": lambda: health.beat_check(environment.redis_url),
        "database": lambda: health.database_check(environment.database_url),
        "broker": lambda: health.broker_check(environment.redis_url),
        "demo-traffic": lambda: health.demo_traffic_check(environment.redis_url),
    }
    try:
        checks[part]()
    except health.NotReady as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{part} answers")
    return 0


@click.command
@json_option
def migrations(as_json: bool) -> int:
    _django()
    from controlplane.database.migration_plan import migrations_told

    return migrations_told(as_json=as_json)


@click.command
def secrets() -> None:
    from controlplane.stack.credentials import environment_lines

    print(environment_lines())


@click.command
@click.argument("email")
@click.option("--take-over", is_flag=True, help="also where somebody has an account of that address")
def create_operator(email: str, take_over: bool) -> int:
    _django()
    from controlplane.commands.administer import create_operator

    return create_operator(email, takes_over=take_over)


@click.command
@click.argument("email")
@click.option("--name", default="command line", help="what it is for, as the list of tokens shows it")
@click.option("--scope", multiple=True, type=click.Choice(SCOPES), help="may be repeated; else all")
@json_option
def operator_token(email: str, name: str, scope: tuple[str, ...], as_json: bool) -> int:
    _django()
    from controlplane.commands.administer import operator_token

    return operator_token(email, name=name, scopes=list(scope or SCOPES), as_json=as_json)


@click.command
@click.argument("email")
@json_option
def reset_link(email: str, as_json: bool) -> int:
    _django()
    from controlplane.commands.administer import password_reset_link

    return password_reset_link(email, as_json=as_json)


@click.command
@json_option
def rotate_master_key(as_json: bool) -> int:
    _django()
    from controlplane.commands.administer import rotate_master_key

    return rotate_master_key(as_json=as_json)


@click.command
@click.argument("file", help="must not be there yet; - is standard output, to be encrypted on the way")
@json_option
def backup(file: str, as_json: bool) -> int:
    _beside_the_stack()
    from controlplane.backups.doors import backup

    return backup(file, as_json=as_json)


@at_most_one("file", "--already-restored", required=True)
@click.command
@click.argument("file", required=False, help="what luminet backup wrote")
@click.option("--already-restored", is_flag=True, help="the database was brought back by other means: begin its era")
@click.option("--audit", metavar="FILE", help="a newer copy of the audit trail: what ended since, ends again")
@click.option("--dry-run", is_flag=True, help="do all of it, and then leave everything as it was")
@yes_option
@json_option
def restore(
    file: str | None, already_restored: bool, audit: str | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    _beside_the_stack()
    from controlplane.backups.doors import Asked, restore

    return restore(Asked(file, audit, dry_run, yes, as_json))


@click.command
@click.option("--head", metavar="SEQ:HASH", help="the head an earlier run printed: shows a cut-off end too")
@click.option("--anchor", metavar="FILE", help="heads written outside the database: name the records it lost")
@json_option
def audit_verify(head: str | None, anchor: str | None, as_json: bool) -> int:
    _django()
    from controlplane.commands.administer import audit_check

    return audit_check(head, anchor_file=anchor, as_json=as_json)


@click.command
@click.option("--after", type=int, default=0, metavar="SEQ", help="only those behind that number")
def audit_export(after: int) -> int:
    _django()
    from controlplane.commands.administer import audit_export

    return audit_export(after=after)


@click.command
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    top = context.find_root()
    name = top.info_name or "luminet"
    if completion_class := get_completion_class(shell):
        print(completion_class(top.command, {}, name, f"_{name}_COMPLETE".upper()).source())


def _beside_the_stack() -> None:
    """Use the settings of the stack that runs from here, unless the command has settings itself."""
    if "LUMINET_DATABASE_URL" not in os.environ:
        from controlplane.stack.doors import environment_of_running_stack

        os.environ.update(environment_of_running_stack())


def _django() -> None:
    _beside_the_stack()
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()
