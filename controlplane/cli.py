"""The `luminet` command. One name on every machine; each door imports only what it needs when it is opened."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from controlplane.client import amounts
from controlplane.client.arguments import REST_SCOPES, client_commands
from controlplane.client.calc_arguments import calc_arguments
from controlplane.common.collector import collect_less_often
from controlplane.common.version import version

PARTS = ("web", "worker", "beat", "roles", "migrate", "demo-traffic")
AREAS = (  # that the doctor examines, in its order
    "versions", "reachability", "migrations", "permissions", "secrets", "clock", "disk", "machine", "gpu", "ports",
    "chromium", "fleet", "numbers", "trail",
)  # fmt: skip
HEALTH = ("web", "worker", "beat", "database", "broker", "demo-traffic")
Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A mistyped command ends with 1: to `plan`, 2 is an answer."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    command: Command = options.command
    collect_less_often()
    try:
        return command(options)
    except ModuleNotFoundError as error:
        return _missing_half(error, command)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def parser() -> argparse.ArgumentParser:
    """Everything `luminet` can do, as the tests of the documentation read it too."""
    top: argparse.ArgumentParser = Parser(prog="luminet", description="Run and operate Luminet.")
    top.add_argument("--version", action="version", version=f"luminet {version()}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    stack = commands.add_parser("stack", help="the embedded stack of this machine").add_subparsers(required=True)
    _add(stack, "up", _stack_up, "start PostgreSQL, Redis, web, worker and beat; stop with Ctrl-C")
    _for_programs(_add(stack, "status", _stack_status, "list what runs"))
    _add(stack, "down", _stack_down, "stop the stack that runs from this folder")
    clean = _add(stack, "clean", _stack_clean, "delete this stack's data, logs and secrets")
    clean.add_argument("--yes", action="store_true", help="do not ask")
    _add(stack, "prepare", _stack_prepare, "migrate, collect static files, seed the demo (`up` does this)")

    run = _add(commands, "run", _run, "run one part of the control plane in this process")
    run.add_argument("part", choices=PARTS)
    health = _add(commands, "health", _health, "ask one part whether it does its work; status 1 when not")
    health.add_argument("part", choices=HEALTH)
    _doctor_arguments(_add(commands, "doctor", _doctor, "say what is well here, what is not, and what to do"))
    _for_programs(
        _add(
            commands,
            "migrations",
            _migrations,
            "show what `run migrate` would do, and who waits; 2: something is to come",
        )
    )
    _add(commands, "secrets", _secrets, "print a fresh set of production secrets for an .env file")
    operator = _add(
        commands, "create-operator", _create_operator, "create a person who runs the fleet, or make one of an account"
    )
    operator.add_argument("email")
    operator.add_argument("--take-over", action="store_true", help="also where somebody has an account of that address")
    _local_commands(commands)
    client_commands(commands)
    return top


def _doctor_arguments(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("area", nargs="*", type=_area, metavar="AREA", help=", ".join(AREAS) + "; none: all")
    where = doctor.add_mutually_exclusive_group()
    where.add_argument("--home", type=Path, metavar="DIR", help="of an agent or a gateway: examine that")
    where.add_argument("--url", metavar="URL", help="of a control plane: examine that, from afar (LUMINET_URL)")
    doctor.add_argument("--insecure", action="store_true", help="let the token travel over http to another machine")
    doctor.add_argument("--seconds", type=amounts.seconds, default=7.0, help="how long a check may take (7)")
    doctor.add_argument("--deep", action="store_true", help="walk the whole audit trail, too, however long that takes")
    _for_programs(doctor)


def _area(text: str) -> str:
    if text not in AREAS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(AREAS)}")
    return text


def _local_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """What is done beside the database, with the processes' own settings."""
    token = _add(commands, "operator-token", _operator_token, "create an operator's token and print it once")
    token.add_argument("email")
    token.add_argument("--name", default="command line", help="what it is for, as the list of tokens shows it")
    token.add_argument("--scope", action="append", default=[], choices=REST_SCOPES, help="may be repeated; else all")
    _for_programs(token)
    link = _add(commands, "reset-link", _reset_link, "print a link that sets a new password, once")
    link.add_argument("email")
    _for_programs(link)
    _for_programs(
        _add(commands, "rotate-master-key", _rotate_master_key, "encrypt everything anew under the present master key")
    )
    _backup_commands(commands)
    audit = commands.add_parser("audit", help="the audit trail").add_subparsers(required=True)
    verify = _add(
        audit, "verify", _audit_verify, "name the first changed or missing record; status 1 when there is one"
    )
    verify.add_argument("--head", metavar="SEQ:HASH", help="the head an earlier run printed: shows a cut-off end too")
    verify.add_argument("--anchor", metavar="FILE", help="heads written outside the database: name the records it lost")
    _for_programs(verify)
    export = _add(audit, "export", _audit_export, "print every record as a line of JSON, oldest first")
    export.add_argument("--after", type=int, default=0, metavar="SEQ", help="only those behind that number")
    calc = _add(commands, "calc", _calc, "count what a model's KV cache takes in each format, and what fits where")
    calc_arguments(calc)
    _for_programs(calc)
    about = "say what hit rate each cache policy would give a recorded request trace"
    # Its options are its own: nothing here is an option, not even -h, so all of them go through the door.
    replay = commands.add_parser("replay", help=about, add_help=False, prefix_chars="\0")
    replay.add_argument("arguments", nargs=argparse.REMAINDER)
    replay.set_defaults(command=_replay)
    for name, command, about in (
        ("quality", _quality, "measure what each KV format costs in quality on a model, and judge it"),
        ("calibrate", _calibrate, "find a model's static scales and key means on a text, and save them beside it"),
        ("engine", _engine, "serve a model's folder with an OpenAI API, with one namespace and a key of its own"),
        ("agent", _agent, "a machine of a fleet: join a control plane, and have an engine obey it"),
        ("simulate", _simulate, "many agents of a fleet without engines, to try a control plane"),
        ("gateway", _gateway, "the front door of a fleet: an OpenAI API that sends each request to an engine"),
        ("bench", _bench, "load any OpenAI server and say how it answered: percentiles, throughput, cached tokens"),
        ("lint-prompt", _lint_prompt, "find what varies inside prompts that are otherwise the same, on this machine"),
        ("savings", _savings, "measure what prefix caching saves on a model: first-token times, cost, capacity"),
    ):
        door = commands.add_parser(name, help=about, add_help=False, prefix_chars="\0")
        door.add_argument("arguments", nargs=argparse.REMAINDER)
        door.set_defaults(command=command)


def _backup_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    backup = _add(commands, "backup", _backup, "write the control plane's database into a file, while everything runs")
    backup.add_argument("file", help="must not be there yet; - is standard output, to be encrypted on the way")
    _for_programs(backup)
    restore = _add(commands, "restore", _restore, "bring a backup back, so that the fleet takes it up")
    what = restore.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", help="what luminet backup wrote")
    what.add_argument(
        "--already-restored", action="store_true", help="the database was brought back by other means: begin its era"
    )
    restore.add_argument(
        "--audit", metavar="FILE", help="a newer copy of the audit trail: what ended since, ends again"
    )
    restore.add_argument("--dry-run", action="store_true", help="do all of it, and then leave everything as it was")
    restore.add_argument("--yes", action="store_true", help="do not ask")
    _for_programs(restore)


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, command: Command, about: str
) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    added.set_defaults(command=command)
    return added


def _for_programs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def _stack_up(options: argparse.Namespace) -> int:
    from controlplane.stack.doors import up

    return up()


def _stack_status(options: argparse.Namespace) -> int:
    from controlplane.stack.doors import status

    return status(as_json=options.json)


def _stack_down(options: argparse.Namespace) -> int:
    from controlplane.stack.doors import down

    return down()


def _stack_clean(options: argparse.Namespace) -> int:
    from controlplane.stack.doors import clean

    return clean(asks=not options.yes)


def _stack_prepare(options: argparse.Namespace) -> int:
    from controlplane.stack.prepare import prepare

    prepare()
    return 0


def _run(options: argparse.Namespace) -> int:
    from controlplane import serve

    serve.PARTS[options.part]()
    return 0


def _health(options: argparse.Namespace) -> int:
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
        checks[options.part]()
    except health.NotReady as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.part} answers")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from controlplane.doctor.command import doctor

    return doctor(options)


def _migrations(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.database.migration_plan import migrations_told

    return migrations_told(as_json=options.json)


def _secrets(options: argparse.Namespace) -> int:
    from controlplane.stack.credentials import environment_lines

    print(environment_lines())
    return 0


def _create_operator(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import create_operator

    return create_operator(options.email, takes_over=options.take_over)


def _operator_token(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import operator_token

    scopes = options.scope or list(REST_SCOPES)
    return operator_token(options.email, name=options.name, scopes=scopes, as_json=options.json)


def _reset_link(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import password_reset_link

    return password_reset_link(options.email, as_json=options.json)


def _rotate_master_key(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import rotate_master_key

    return rotate_master_key(as_json=options.json)


def _backup(options: argparse.Namespace) -> int:
    _beside_the_stack()
    from controlplane.backups.doors import backup

    return backup(options.file, as_json=options.json)


def _restore(options: argparse.Namespace) -> int:
    _beside_the_stack()
    from controlplane.backups.doors import Asked, restore

    return restore(Asked(options.file, options.audit, options.dry_run, options.yes, options.json))


def _audit_verify(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import audit_check

    return audit_check(options.head, anchor_file=options.anchor, as_json=options.json)


def _audit_export(options: argparse.Namespace) -> int:
    _beside_the_stack()
    _django()
    from controlplane.commands.administer import audit_export

    return audit_export(after=options.after)


def _calc(options: argparse.Namespace) -> int:
    from controlplane.client.calc import calc

    return calc(options)


def _replay(options: argparse.Namespace) -> int:
    # By name: the control plane imports only the shared modules of the data plane.
    status: int = importlib.import_module("engine_agent.tools.replay.command").main(options.arguments)
    return status


def _quality(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.tools.quality.command").main(options.arguments)
    return status


def _calibrate(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.tools.quality.calibrating").main(options.arguments)
    return status


def _simulate(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.sidecar.simulate").main(options.arguments)
    return status


def _agent(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.sidecar.command").main(options.arguments)
    return status


def _gateway(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.gateway.command").main(options.arguments)
    return status


def _engine(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.server.command").main(options.arguments)
    return status


def _bench(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.tools.loadgen.command").main(options.arguments)
    return status


def _lint_prompt(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.tools.lint_prompt").main(options.arguments)
    return status


def _savings(options: argparse.Namespace) -> int:
    status: int = importlib.import_module("engine_agent.tools.savings.command").main(options.arguments)
    return status


def _beside_the_stack() -> None:
    """Without settings of its own, a command means the stack that runs from here."""
    if "LUMINET_DATABASE_URL" not in os.environ:
        from controlplane.stack.doors import environment_of_running_stack

        os.environ.update(environment_of_running_stack())


def _django() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()


def _missing_half(error: ModuleNotFoundError, command: Command) -> int:
    """This machine has one half of Luminet and was asked for the other."""
    if (error.name or "").split(".")[0] in {"controlplane", "tenants"}:
        raise error
    extra = _extra_of(command)
    print(
        f"luminet: {error.name} is not installed on this machine. This command needs the extra `{extra}`: "
        f"pip install -c constraints.txt -e '.[{extra}]'",
        file=sys.stderr,
    )
    return 1


def _extra_of(command: Command) -> str:
    """Beside what is installed already: pip takes nothing away."""
    if command in (_gateway, _simulate, _lint_prompt):
        return "agent"
    if command in (_agent, _engine, _quality, _calibrate, _bench, _savings):
        return "engine"
    if command in (_stack_up, _stack_status, _stack_down, _stack_clean, _stack_prepare):
        return "control,embedded"
    return "control"


if __name__ == "__main__":
    sys.exit(main())
