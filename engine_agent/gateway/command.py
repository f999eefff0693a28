"""`luminet gateway`: runs a gateway of a fleet, from its command line to its exit status."""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import closing, suppress

from engine_agent.gateway.config import GatewayConfig, gateway_config, gateway_options
from engine_agent.gateway.holder import about_gateway
from engine_agent.gateway.limits import connections_most
from engine_agent.gateway.process import GatewayProcess
from engine_agent.http.listening import CannotListen, bind_tcp
from engine_agent.process.allocator import allocator_bound
from engine_agent.process.commands import Parser, loop_factory, open_files_raise, run
from engine_agent.process.logs import log_to_stderr
from engine_agent.sidecar.credentials import Credentials
from engine_agent.sidecar.enrolment import credentials_ensured
from engine_agent.sidecar.errors import BadCredentials, SidecarError

KIND = "gateway"
ABOUT = "The front door of a fleet: an OpenAI API that knows keys and namespaces, and sends each request to an engine."
EXAMPLES = """examples:
  luminet gateway --join https://luminet.example.com --token ljt_…
  luminet gateway --host 0.0.0.0 --port 8080 --address https://inference.example.com

Joining is once: the next start needs neither --join nor --token, and no control plane that answers.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _run(options), SidecarError, CannotListen)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="luminet gateway",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    gateway_options(top)
    return top


def _run(options: argparse.Namespace) -> int:
    """Run the gateway. Bind the port first, to fail at once if it is in use."""
    allocator_bound()
    config = gateway_config(options, os.environ)
    log_to_stderr(is_json=config.is_logging_json)
    with closing(bind_tcp(config.host, config.port)) as public:
        options.port = public.getsockname()[1]
        config = gateway_config(options, os.environ)  # the port is now known, and the state directory is named after it
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_served(config, public))


async def _served(config: GatewayConfig, public: socket.socket) -> int:
    from prometheus_client import disable_created_metrics

    # A creation time for each series would double the page.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    files = open_files_raise()
    credentials = await _joined(config)
    if credentials is None:
        return 0
    if credentials.kind != KIND:
        raise BadCredentials(f"{config.home}: {credentials.agent} is of kind {credentials.kind}: give another --home")
    process = GatewayProcess(config, credentials, public, most_connections=connections_most(files))
    return await process.run(lambda: _say_ready(config, credentials))


async def _joined(config: GatewayConfig) -> Credentials | None:
    """Return the credentials, or None if a signal stopped the process before the control plane answered."""
    about = about_gateway(config.address, config.labels)
    joining = asyncio.create_task(credentials_ensured(config.home, config.joining, kind=KIND, about=about))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, joining.cancel)
    with suppress(asyncio.CancelledError):
        return await joining
    return None


def _say_ready(config: GatewayConfig, credentials: Credentials) -> None:
    text = (
        f"{credentials.agent} answers at {config.address}/v1, for the group {credentials.group} of {credentials.url}."
    )
    record = {"event": text, "url": f"{config.address}/v1", "agent": credentials.agent, "home": str(config.home)}
    print(json.dumps(record) if config.is_logging_json else text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
