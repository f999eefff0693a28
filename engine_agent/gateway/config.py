"""The options of one gateway process, read once into a frozen value. Opens no file except a token file."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from engine_agent.gateway.quotas.gate import QUEUE_SECONDS
from engine_agent.gateway.route import Routing
from engine_agent.http.listening import local_url
from engine_agent.http.scraping import Scrapers
from engine_agent.process.config import default_home
from engine_agent.process.option_types import seconds_read, whole_read
from engine_agent.sidecar.command import joining_options, joining_read
from engine_agent.sidecar.enrolment import Joining

DRAIN_SECONDS = 600.0  # a long answer takes that long. A supervisor that stops the process has to wait longer
_LABEL = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})=([A-Za-z0-9._-]{1,63})", re.ASCII)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    joining: Joining
    host: str
    port: int
    home: Path
    address: str  # the URL for clients, as the fleet's page shows it
    labels: Mapping[str, str]
    drain_seconds: float
    queue_seconds: float  # how long a request may wait for a seat
    routing: Routing
    canary_seconds: float  # time between two rounds of isolation probes at an engine; 0: none
    is_logging_json: bool
    scrapers: Scrapers


def gateway_config(options: argparse.Namespace, environ: Mapping[str, str]) -> GatewayConfig:
    return GatewayConfig(
        joining=joining_read(options, environ),
        host=options.host,
        port=options.port,
        home=(options.home or default_home(environ, f"gateway-{options.port}")).absolute(),
        address=(options.address or local_url(options.host, options.port)).rstrip("/"),
        labels=dict(options.label),
        drain_seconds=options.drain_seconds,
        queue_seconds=options.queue_seconds,
        routing=options.routing,
        canary_seconds=options.canary_seconds,
        is_logging_json=options.json_logs,
        scrapers=Scrapers.read(environ),
    )


def gateway_options(parser: argparse.ArgumentParser) -> None:
    joining = parser.add_argument_group("the control plane")
    joining_options(joining)
    listening = parser.add_argument_group("where it listens")
    listening.add_argument("--host", default="127.0.0.1", help="(127.0.0.1)")
    listening.add_argument("--port", type=whole_read(0, 65_535), default=8080, help="(8080; 0: any free one)")
    listening.add_argument("--address", metavar="URL", help="where clients reach it (where it listens)")
    listening.add_argument(
        "--label", type=_label, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    listening.add_argument(
        "--home", type=Path, metavar="DIR", help="its credentials and its last snapshot (.luminet/gateway-PORT)"
    )
    listening.add_argument(
        "--drain-seconds",
        type=seconds_read,
        default=DRAIN_SECONDS,
        metavar="N",
        help=f"for what still runs when it is stopped ({DRAIN_SECONDS:g})",
    )
    listening.add_argument(
        "--queue-seconds",
        type=seconds_read,
        default=QUEUE_SECONDS,
        metavar="N",
        help="for which a request waits where engines are full (30)",
    )
    listening.add_argument(
        "--canary-seconds",
        type=seconds_read,
        default=10.0,
        metavar="N",
        help="between two rounds of isolation probes at an engine; 0: none (10)",
    )
    listening.add_argument(
        "--routing",
        choices=get_args(Routing),
        default="cache-aware",
        help="round-robin: each engine in its turn, whatever it holds, to compare with (cache-aware)",
    )
    listening.add_argument("--json-logs", action="store_true", help="log lines for programs")


def _label(text: str) -> tuple[str, str]:
    match = _LABEL.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no label like tier=canary")
    return match[1], match[2]
