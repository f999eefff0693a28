"""Memory of the web processes that share a metrics directory: the sum over all of them.

prometheus-client reports a single process under the same name, but nothing for processes that share a directory.
Without /proc, neither reports anything.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_FILE: Final = re.compile(r"gauge_livesum_(\d+)\.db")  # each process writes its gauge of sockets here
_PROC: Final = Path("/proc")


class WebMemory(Collector):
    def __init__(self, directory: Path, proc: Path = _PROC) -> None:
        self._directory, self._proc = directory, proc

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("process_resident_memory_bytes", "Resident memory of all web processes in bytes.")
        if sizes := [size for pid in _processes(self._directory) if (size := _resident(self._proc, pid)) is not None]:
            family.add_metric((), sum(sizes))
        yield family


def _processes(directory: Path) -> Iterator[int]:
    """Yield the ids of processes that have written to the directory; some may have ended."""
    for path in directory.iterdir():
        if match := _FILE.fullmatch(path.name):
            yield int(match[1])


def _resident(proc: Path, pid: int) -> int | None:
    try:
        pages = (proc / str(pid) / "statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
