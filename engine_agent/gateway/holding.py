"""Gauges of the resources that clients occupy in a gateway, for `/metrics`. A request that is over must occupy none."""

import asyncio
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine_agent.http.bodies import Bodies
from engine_agent.http.serving import Server


class Holding(Collector):
    """Gauges of connections, bodies and tasks. They must be collected in the event loop that serves."""

    def __init__(self, bodies: Bodies, server: Server) -> None:
        self._bodies, self._server = bodies, server

    def collect(self) -> Iterator[Metric]:
        levels = {
            "connections": ("Connections of clients that are open.", len(self._server.server_state.connections)),
            "body_bytes": ("Of bodies that are being received or answered.", self._bodies.held_bytes),
            "tasks": ("Deeds under way in its event loop: its own, and a few for each request.", _tasks()),
        }
        for name, (description, level) in levels.items():
            yield GaugeMetricFamily(f"luminet_gateway_{name}", description, value=level)


def _tasks() -> int:
    return len(asyncio.all_tasks())
