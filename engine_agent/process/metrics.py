"""Process metrics of the data plane: memory, files, processor and version.

The names are the same as those of Prometheus's clients in every language.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import generate_latest

from engine_agent.process.version import luminet_version

PROCESS: Final = CollectorRegistry()
ProcessCollector(registry=PROCESS)
Gauge("luminet_build_info", "Always 1; the label says which version.", ("version",), registry=PROCESS).labels(
    luminet_version()
).set(1)


def process_text() -> bytes:
    return generate_latest(PROCESS)
