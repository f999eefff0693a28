"""`make test-kernels`: the whole product of every kernel matrix, and a record of it if all of it passed."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from controlplane.stack.bootstrap import CHECKOUT
from tests.kernels.matrix import ENVIRONMENT, FULL
from tests.kernels.verified import FILE, TESTS, Ids, current_ids, verified_write

ADDED_OPTIONS = "PYTEST_ADDOPTS"  # pytest's own: may leave tests out


class Tally:
    """A plugin of pytest that counts how tests and files ended, those of xdist's processes too."""

    def __init__(self) -> None:
        self.outcomes = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes["xfailed" if hasattr(report, "wasxfail") else report.outcome] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.outcomes[report.outcome] += 1


Run = Callable[[Sequence[str], Tally], int]


def main(
    arguments: Sequence[str],
    *,
    run: Run | None = None,
    ids: Callable[[], Ids] = current_ids,
    environ: Mapping[str, str] = os.environ,
    file: Path = FILE,
) -> int:
    """Run the full matrix. Record the ids if nothing was left out, nothing failed, and nothing changed meanwhile."""
    before, tally = ids(), Tally()
    code = (run or run_pytest)(arguments, tally)
    if code:
        return code
    why = reason_not_to_record(arguments, environ, tally, is_changed=ids() != before)
    if why:
        print(f"make test-kernels: passed, but not recorded: {why}.")
    else:
        verified_write(before, tally.outcomes["passed"], file)
        print(f"make test-kernels: passed and recorded in {file.name}.")
    return 0


def reason_not_to_record(
    arguments: Sequence[str], environ: Mapping[str, str], tally: Tally, *, is_changed: bool
) -> str | None:
    """Say why a run that passed was not the full one."""
    others = {name: count for name, count in tally.outcomes.items() if name != "passed" and count}
    if arguments or environ.get(ADDED_OPTIONS):
        return "it ran with options of its own"
    if others:
        return "of its tests " + ", ".join(f"{count} were {name}" for name, count in others.items())
    if not tally.outcomes["passed"]:
        return "it ran no test"
    return "files or versions changed while it ran" if is_changed else None


def run_pytest(arguments: Sequence[str], tally: Tally) -> int:
    os.environ[ENVIRONMENT] = FULL
    os.chdir(CHECKOUT)
    processes = ["-n", str(os.cpu_count() or 1), "--dist", "loadfile", "--no-loadscope-reorder"]
    return int(pytest.main([TESTS, *processes, *arguments], plugins=[tally]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
