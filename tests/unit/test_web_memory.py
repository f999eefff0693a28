"""Of several web processes the memory is told of all together, and of none that has ended."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry

from controlplane.web.memory import WebMemory

NAME = "process_resident_memory_bytes"


def told(directory: Path, proc: Path) -> float | None:
    registry = CollectorRegistry()
    registry.register(WebMemory(directory, proc))
    return registry.get_sample_value(NAME)


def test_all_that_live_are_added_up_and_each_once(tmp_path: Path) -> None:
    folder, proc = tmp_path / "metrics", tmp_path / "proc"
    folder.mkdir()
    for pid, pages in ((11, 100), (12, 23)):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "statm").write_text(f"9000 {pages} 50 1 0 80 0\n")
    for name in ("gauge_livesum_11.db", "counter_11.db", "gauge_livesum_12.db", "gauge_livesum_13.db"):
        (folder / name).touch()
    assert told(folder, proc) == 123 * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_told_where_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "gauge_livesum_11.db").touch()
    assert told(tmp_path, tmp_path / "no-proc") is None


def test_it_is_what_the_system_says_of_this_process(tmp_path: Path) -> None:
    (tmp_path / f"gauge_livesum_{os.getpid()}.db").touch()
    assert 10e6 < (told(tmp_path, Path("/proc")) or 0) < 10e9
