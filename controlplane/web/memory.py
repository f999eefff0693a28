"""How much memory the web takes where several processes share their numbers: all of them together.

Of one process prometheus-client tells that by itself, under the same name; of those that share a folder nobody does.
Where there is no /proc, neither tells it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_FILE: Final = re.compile(r"gauge_livesum_(\d+)\.db")  # into which each process writes its own sockets
_PROC: Final = Path("/proc")


class WebMemory(Collector):
    def __init__(self, directory: Path, proc: Path = _PROC) -> None:
        self._directory, self._proc = directory, proc

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("process_resident_memory_bytes", "Resident memory of all web processes in bytes.")
        if found := [size for pid in _processes(self._directory) if (size := _resident(self._proc, pid)) is not None]:
            family.add_metric((), sum(found))
        yield family


def _processes(directory: Path) -> Iterator[int]:
    """Those that have written there; some may have ended since."""
    for path in directory.iterdir():
        if found := _FILE.fullmatch(path.name):
            yield int(found[1])


def _resident(proc: Path, pid: int) -> int | None:
    try:
        pages = (proc / str(pid) / "statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
