"""All units of CHECK, shared out among processes: compiling takes most of the time, and a machine has many cores."""

import queue
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.bench.gpu.check_log import UnitOutcome, outcome_unpacked
from tests.bench.processes import NotStarted
from tests.bench.workers import NoAnswer, Worker, worker_running

MOST_PROCESSES = 12
BYTES_A_PROCESS = 6 * 2**30  # the largest unit's tensors, and a CUDA context
THREADS = {"OMP_NUM_THREADS": "1"}
CHECKER = (sys.executable, "-m", "tests.bench.gpu.check_worker")


def processes_for(units: int, cores: int, free_bytes: int) -> int:
    return max(1, min(units, cores, MOST_PROCESSES, free_bytes // BYTES_A_PROCESS))


def units_checked(units: Sequence[str], processes: int, command: Sequence[str] = CHECKER) -> Iterator[UnitOutcome]:
    """Each unit's outcome as soon as there is one."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[UnitOutcome] = queue.SimpleQueue()
    for unit in units:
        waiting.put(unit)
    with ThreadPoolExecutor(processes) as threads:
        for _ in range(processes):
            threads.submit(_work, command, waiting, done)
        try:
            for _ in units:
                yield done.get()
        finally:  # Ctrl-C: what is under way is waited for, and nothing more begins
            _empty(waiting)


def _empty(waiting: "queue.SimpleQueue[str]") -> None:
    while _next(waiting) is not None:
        pass


def _next(waiting: "queue.SimpleQueue[str]") -> str | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _work(command: Sequence[str], waiting: "queue.SimpleQueue[str]", done: "queue.SimpleQueue[UnitOutcome]") -> None:
    """One process after the other, until no unit waits: a process ends with the unit that made it fail."""
    while (unit := _next(waiting)) is not None:
        try:
            with worker_running(command, THREADS) as worker:
                while unit is not None and _is_checked(worker, unit, done):
                    unit = _next(waiting)
        except (NotStarted, OSError) as problem:
            done.put(UnitOutcome(unit or "", error=f"the process that checks did not start: {problem}"))


def _is_checked(worker: Worker, unit: str, done: "queue.SimpleQueue[UnitOutcome]") -> bool:
    """Whether the process can go on."""
    try:
        outcome = outcome_unpacked(worker.ask(unit=unit))
    except NoAnswer as problem:
        done.put(UnitOutcome(unit, error=str(problem)))
        return False
    done.put(outcome)
    return not outcome.error  # after an error of CUDA's, every later call in that process fails
