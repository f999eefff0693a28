"""`make coverage`: how many branches of each package the whole suite takes, beside what it took when that was recorded.

Also in processes that tests start. Who lowers the share of a package finds out here; `--write` records a new baseline.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suite.files import CHECKOUT

BASELINE = Path(__file__).with_name("branches.json")
FOLDER = CHECKOUT / ".luminet" / "coverage"
PACKAGES = ("controlplane", "engine_agent", "kernels", "tenants")
SETTINGS = """\
[run]
branch = true
parallel = true
data_file = {folder}/.coverage
source =
{sources}
patch =
    subprocess
    _exit
    fork
disable_warnings = {quiet}
"""
# Measured code is several times slower: a test of a minute is not one that hangs after ten.
PATIENT = ("-o", "faulthandler_timeout=3600")
# Which a process that imports none of our packages, or a part of them, would raise.
QUIET = (
    "no-data-collected",
    "module-not-measured",
    "module-not-imported",
    "couldnt-parse",
    "already-imported",
    "module-not-python",
)


@dataclass(frozen=True, slots=True)
class Branches:
    taken: int = 0
    known: int = 0

    @property
    def percent(self) -> float:
        return 100 * self.taken / self.known if self.known else 100.0

    def __add__(self, other: "Branches") -> "Branches":
        return Branches(self.taken + other.taken, self.known + other.known)


def package_of(file: str) -> str:
    """Two folders deep: `controlplane/rollouts`; what lies at a root is the root's."""
    return "/".join(Path(file).parent.parts[:2])


def by_package(files: Mapping[str, Branches]) -> dict[str, Branches]:
    sums: defaultdict[str, Branches] = defaultdict(Branches)
    for file, branches in files.items():
        sums[package_of(file)] += branches
    return dict(sorted(sums.items()))


def lowered(found: Mapping[str, Branches], baseline: Mapping[str, float]) -> Iterable[str]:
    for package, least in baseline.items():
        now = found.get(package)
        if now is not None and round(now.percent, 1) < least:
            yield f"{package}: {now.percent:.1f} % of its branches are taken, {least} % were"


def measure(pytest_arguments: Sequence[str]) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    settings = FOLDER / "coverage.ini"
    sources = "\n".join(f"    {CHECKOUT / one}" for one in PACKAGES)
    settings.write_text(SETTINGS.format(folder=FOLDER, sources=sources, quiet=",".join(QUIET)))
    run = ["run", f"--rcfile={settings}", "-m", "pytest", "-p", "tests.suite.recording", *PATIENT, *pytest_arguments]
    status = _coverage(*run).returncode
    _coverage("combine", "-q", f"--rcfile={settings}")
    _coverage("json", "-q", "-i", f"--rcfile={settings}", "-o", str(FOLDER / "coverage.json"))
    return status


def read() -> dict[str, Branches]:
    """Of each package, from what coverage.py wrote."""
    files = json.loads((FOLDER / "coverage.json").read_text())["files"]
    summaries = {name: one["summary"] for name, one in files.items()}
    return by_package({name: Branches(one["covered_branches"], one["num_branches"]) for name, one in summaries.items()})


def _coverage(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "coverage", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record what is found as the baseline")
    parser.add_argument("pytest", nargs="*", help="what pytest is told, such as -n 2")
    told = parser.parse_args()
    status = measure(told.pytest)
    found = read()
    for package, branches in found.items():
        print(f"{package:40} {branches.taken:6} of {branches.known:6}  {branches.percent:5.1f} %")
    if told.write:
        kept = {package: round(branches.percent, 1) for package, branches in found.items()}
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n")
        return status
    problems = list(lowered(found, json.loads(BASELINE.read_text())))
    print("\n".join(problems) or "no package has a lower share than the baseline")
    return status or bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
