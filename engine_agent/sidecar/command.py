"""Run `luminet agent`: join the fleet with a new engine (--model) or an existing one (--engine-state)."""

import argparse
import asyncio
import contextlib
import os
import platform
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_agent.http.listening import CannotListen
from engine_agent.http.scraping import Scrapers
from engine_agent.process.commands import Parser, loop_factory, run
from engine_agent.process.config import default_home
from engine_agent.process.logs import log_to_stderr
from engine_agent.process.stopping import STOPPED_AT_ONCE
from engine_agent.process.version import luminet_version
from engine_agent.sidecar.admin import AdminHolder, Advertised, EngineFace
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.credentials import Credentials
from engine_agent.sidecar.engine_child import EngineChild, engine_command, options_check
from engine_agent.sidecar.enrolment import Joining, credentials_ensured
from engine_agent.sidecar.errors import BadHome, SidecarError
from engine_agent.sidecar.runtime import Runtime
from engine_agent.sidecar.spool import replace_file
from engine_agent.sidecar.status import status_served

ABOUT = "A machine of the fleet: joins a control plane, and has an engine obey it."
EXAMPLES = """examples:
  luminet agent --join https://luminet.example.com --token ljt_… --model ~/models/qwen3-0.6b
  luminet agent --join https://luminet.example.com --token ljt_… --model ~/models/qwen3-0.6b --pool 2GiB --threads 4

Options that are not here are the engine's: luminet engine --help. Joining is once: the next start needs neither
--join nor --token.
"""
STATUS_PORT_DISTANCE = 100
SECRET_FILE = "identity-secret"  # noqa: S105 (a file's name)
_LABEL = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})=([A-Za-z0-9._-]{1,63})", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    home: Path
    joining: Joining
    model: Path | None
    engine_state: Path
    port: int
    advertised: Advertised
    status_host: str
    status_port: int
    engine_options: tuple[str, ...]
    is_logging_json: bool
    scrapers: Scrapers


def main(arguments: Sequence[str] | None = None) -> int:
    options, engine_options = parser().parse_known_args(arguments)
    return run(lambda: _run(_read(options, engine_options)), SidecarError, CannotListen)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="luminet agent",
        description=ABOUT,
        epilog=EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    joining = top.add_argument_group("the control plane")
    joining_options(joining)
    engine = top.add_argument_group("the engine")
    engine_source = engine.add_mutually_exclusive_group(required=True)
    engine_source.add_argument(
        "--model", type=Path, metavar="PATH", help="of an engine of its own: a Hugging Face folder"
    )
    engine_source.add_argument("--engine-state", type=Path, metavar="DIR", help="of one that somebody else runs")
    engine.add_argument("--model-name", metavar="NAME", help="what clients call the model (the folder's name)")
    engine.add_argument("--port", type=int, default=8101, help="of its OpenAI API (8101)")
    engine.add_argument("--address", metavar="URL", help="where gateways reach it (where it listens)")
    engine.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="for rollouts; may be repeated"
    )
    local = top.add_argument_group("here")
    local.add_argument("--home", type=Path, metavar="DIR", help="what it keeps (.luminet/agent-PORT)")
    local.add_argument("--status-host", default="127.0.0.1", help="of its own health and metrics (127.0.0.1)")
    local.add_argument("--status-port", type=int, metavar="PORT", help=f"(the engine's and {STATUS_PORT_DISTANCE})")
    local.add_argument("--json-logs", action="store_true", help="log lines for programs")
    return top


def joining_options(group: "argparse._ArgumentGroup") -> None:
    """Add the options that agents and gateways need to join."""
    group.add_argument("--join", metavar="URL", help="where it is")
    group.add_argument("--token", metavar="TOKEN", help="a join token (LUMINET_JOIN_TOKEN)")
    group.add_argument("--token-file", type=Path, metavar="FILE", help="where the join token stands")
    group.add_argument("--name", help="what it is to be called (the control plane chooses)")
    group.add_argument(
        "--plain-http-host", action="append", default=[], metavar="HOST", help="may be spoken to without TLS"
    )
    group.add_argument(
        "--broker", metavar="URL", help="how the broker is reached from here (as the control plane says), every time"
    )


def joining_read(options: argparse.Namespace, environ: Mapping[str, str]) -> Joining:
    """Build `Joining` from the options and environment. Raise OSError if the token file cannot be read."""
    token = options.token or environ.get("LUMINET_JOIN_TOKEN", "").strip() or None
    if options.token_file:
        token = options.token_file.read_text(encoding="ascii").strip()
    return Joining(options.join, token, options.name, tuple(options.plain_http_host), options.broker)


def _read(options: argparse.Namespace, engine_options: Sequence[str]) -> AgentOptions:
    if options.engine_state and engine_options:
        raise BadHome(f"{engine_options[0]}: is no option of an agent whose engine somebody else runs")
    home = (options.home or default_home(os.environ, f"agent-{options.port}")).absolute()
    status_port = options.port + STATUS_PORT_DISTANCE if options.status_port is None else options.status_port
    return AgentOptions(
        home=home,
        joining=joining_read(options, os.environ),
        model=options.model,
        engine_state=(options.engine_state or home / "engine").absolute(),
        port=options.port,
        advertised=Advertised(options.address, dict(map(_label_read, options.label))),
        status_host=options.status_host,
        status_port=status_port,
        engine_options=(*engine_options, *_of_the_engine(options)),
        is_logging_json=options.json_logs,
        scrapers=Scrapers.read(os.environ),
    )


def _of_the_engine(options: argparse.Namespace) -> list[str]:
    """Return the agent's options that the engine takes too."""
    name = ["--name", options.model_name] if options.model_name else []
    return name + (["--json-logs"] if options.json_logs else [])


def _label_read(text: str) -> tuple[str, str]:
    if not (match := _LABEL.fullmatch(text)):
        raise BadHome(f"--label: {text[:80]!r} is not like tier=canary")
    return match[1], match[2]


def _run(options: AgentOptions) -> int:
    _engine_checked(options)
    log_to_stderr(is_json=options.is_logging_json)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_served(options))


async def _served(options: AgentOptions) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopping, number)
    joining = asyncio.create_task(
        credentials_ensured(options.home, options.joining, kind="engine", about=_about(options))
    )
    if not await _unless(stopping, joining):
        return 0
    credentials = joining.result()
    secret = _secret_written(options.engine_state, credentials)
    words_in = options.engine_state if options.model is None else None
    holder = AdminHolder(EngineFace(options.engine_state / "admin.sock"), options.advertised, words_in=words_in)
    runtime = Runtime(SidecarConfig(options.home), credentials, holder)
    try:
        async with status_served(runtime, options.scrapers, host=options.status_host, port=options.status_port):
            await _together(options, credentials, secret, holder, runtime, stopping)
    finally:
        await holder.close()
    return 0


def _stop(stopping: asyncio.Event, number: int) -> None:
    """Stop in order at the first signal and exit at once at the second; the first already stopped the engine."""
    if stopping.is_set():
        os._exit(STOPPED_AT_ONCE + number)
    stopping.set()


async def _together(
    options: AgentOptions,
    credentials: Credentials,
    secret: Path,
    holder: AdminHolder,
    runtime: Runtime,
    stopping: asyncio.Event,
) -> None:
    """Run the engine and its sidecar. The sidecar ends last, so that the engine's last records are still reported."""
    if options.model is None:
        await runtime.run(stopping)
        return
    command = _engine_command(options, options.model, credentials.agent, secret)
    socket, is_over = options.engine_state / "admin.sock", asyncio.Event()
    child = EngineChild(
        command, socket, secret=_identity(credentials), tell=holder.say_why_away, has_answered=holder.has_answered
    )
    supervision = asyncio.create_task(child.run(stopping))
    supervision.add_done_callback(lambda _: is_over.set())
    await runtime.run(is_over)
    await supervision


def _engine_command(options: AgentOptions, model: Path, agent: str, secret: Path) -> list[str]:
    return engine_command(
        model=model,
        port=options.port,
        state=options.engine_state,
        agent=agent,
        secret=secret,
        others=options.engine_options,
    )


def _engine_checked(options: AgentOptions) -> None:
    """Check the model folder and the engine's options before a join token is spent on an engine that cannot start."""
    if options.model is None:
        return
    if not (options.model / "config.json").is_file():
        raise BadHome(f"--model: {options.model}: is no folder of a Hugging Face model: it has no config.json")
    command = _engine_command(options, options.model, "agent", options.engine_state / SECRET_FILE)
    check = subprocess.run(options_check(command), capture_output=True, text=True, check=False)
    if check.returncode:
        *_, reason = ["the engine does not understand its options", *check.stderr.strip().splitlines()]
        raise BadHome(reason.removeprefix("luminet: "))


async def _unless(stopping: asyncio.Event, task: "asyncio.Task[Any]") -> bool:
    """Return True if the task ends before `stopping` is set; otherwise cancel it and return False."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False


def _secret_written(folder: Path, credentials: Credentials) -> Path:
    """Write the secret with which the engine verifies gateways, in the form that the control plane gives to them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / SECRET_FILE
    identity_line = _identity(credentials) + b"\n"
    if not path.exists() or path.read_bytes() != identity_line:
        replace_file(path, identity_line)
    return path


def _identity(credentials: Credentials) -> bytes:
    return (credentials.keys["identity"] or "").encode()


def _backend_of(engine_options: Sequence[str]) -> str:
    """Return the backend to report before the engine answers. For an engine run by another program that is our own."""
    reader = argparse.ArgumentParser(add_help=False)
    reader.add_argument("--backend", default="paged")
    return str(reader.parse_known_args(engine_options)[0].backend)


def _about(options: AgentOptions) -> dict[str, Any]:
    """Return what to report about this machine before its engine has answered."""
    return {
        "backend": _backend_of(options.engine_options),
        "version": luminet_version(),
        "address": options.advertised.address or f"http://127.0.0.1:{options.port}",
        "accelerator": None,
        "models": [],
        "kv_dtypes": [],
        "labels": dict(options.advertised.labels),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


if __name__ == "__main__":
    import sys

    sys.exit(main())
