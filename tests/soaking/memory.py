"""What a process of the stack holds, by the system, and what it may hold, by the compose file."""

import re
from pathlib import Path

import psutil

from tests.compose.files import COMPOSE_FILE, compose_read
from tests.fleet.fleets import Part

MOST_PEAK_SHARE = 0.6  # of what the compose file allows
MIB = 2**20
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def resident_mb(part: Part) -> float:
    process = psutil.Process(part.pid)
    family = (process, *process.children(recursive=True))
    return round(sum(member.memory_info().rss for member in family) / 1e6, 2)


def peak_mb(part: Part) -> float:
    """The most that the process itself ever held; 0 where the system does not tell."""
    status = Path(f"/proc/{part.pid}/status")
    found = _PEAK.search(status.read_text(encoding="ascii")) if status.exists() else None
    return int(found[1]) * 1_024 / 1e6 if found else 0.0


def compose_limit_mb(service: str) -> float:
    """What the compose file allows where nobody says otherwise."""
    told = str(compose_read(COMPOSE_FILE)["services"][service]["mem_limit"])
    found = re.search(r"(\d+)m\}?$", told)
    assert found, f"{service}: mem_limit {told!r}"
    return int(found[1]) * MIB / 1e6
