"""What a gateway process holds at this moment, as it tells and as the system does, and what its log complains of."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Levels:
    """The connection by which it was asked is not counted."""

    connections: int
    body_bytes: int
    tasks: int
    running: int


def levels(url: str) -> Levels:
    found = metrics(url)
    named = {name: int(found[f"luminet_gateway_{name}"]) for name in ("connections", "body_bytes", "tasks")}
    running = sum(value for name, value in found.items() if name.startswith("luminet_gateway_running_requests"))
    return Levels(named["connections"] - 1, named["body_bytes"], named["tasks"], int(running))


def metrics(url: str) -> dict[str, float]:
    """By name and, where there are any, the values of its labels."""
    text = httpx.get(f"{url}/metrics", timeout=60).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {" ".join([one.name, *one.labels.values()]): one.value for one in samples}


def sockets(pid: int, port: int) -> int:
    """Connections of clients that the system knows of, whatever the process thinks."""
    found = psutil.Process(pid).net_connections("tcp")
    return sum(one.laddr.port == port and one.status != psutil.CONN_LISTEN for one in found)


def faults(logged: Iterable[str]) -> list[str]:
    """Lines of a JSON log that tell of a mistake of its own; and whatever is no such line."""
    return [line for line in logged if _is_fault(line)]


def _is_fault(line: str) -> bool:
    try:
        told = json.loads(line)
        return "traceback" in told or told["level"] in ("error", "critical")
    except (ValueError, KeyError, TypeError):
        return True
