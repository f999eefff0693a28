"""What every process of the data plane tells of itself beside its own numbers: memory, files, processor, its version.

The names are those that Prometheus' clients have in every language.
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
