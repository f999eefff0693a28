"""`python -m tests.mutations draw|run|compare`."""

import argparse
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutations.drawing import candidates, covering, draw, read_tests
from tests.mutations.editing import Mutation
from tests.mutations.running import Clone, run_mutation
from tests.suite.outliving import outlived_by_nothing

CHECKOUT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("draw", help="pick sixty mutations from covered lines, by a fixed seed")
    drawing.set_defaults(command=_draw)
    running = commands.add_parser("run", help="run the tests that cover each; what has a result already is left out")
    running.set_defaults(command=_run)
    for each in (drawing, running):
        each.add_argument("mutations", type=Path, help="JSON: which were drawn, and the test files that cover each")
        each.add_argument("--tree", type=Path, default=CHECKOUT, help="the checkout, whose last commit is meant")
        each.add_argument(
            "--coverage",
            type=Path,
            required=each is drawing,
            help="data with contexts, of that checkout's tests; without it, `run` asks the test files that were drawn",
        )
    running.add_argument("--results", type=Path, required=True, help="JSON lines, written after each")
    running.add_argument("--durations", type=Path, help="JSON: seconds by test file")
    running.add_argument("--first", type=Path, help="results of another suite: its killers are tried first")
    running.add_argument("--processes", type=int, default=2)
    comparing = commands.add_parser("compare", help="fail where the second suite kills fewer")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(command=_compare)
    options = parser.parse_args()
    sys.exit(options.command(options))


def _draw(options: argparse.Namespace) -> None:
    tests = read_tests(options.coverage)
    drawn = [
        {**asdict(mutation), "tests": sorted(covering(mutation, tests))}
        for mutation in draw(candidates(options.tree), tests)
    ]
    options.mutations.write_text(json.dumps(drawn, indent=1, ensure_ascii=False) + "\n")


def _run(options: argparse.Namespace) -> None:
    before, done = _results(options.first), _results(options.results)
    drawn = _drawn(options.mutations)
    tests = _tests(drawn, options.coverage)
    durations: Mapping[str, float] = json.loads(options.durations.read_text()) if options.durations else {}
    waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in drawn:
        if mutation.key not in done:
            waiting.put(mutation)
    writing = threading.Lock()

    def work(folder: Path) -> None:
        clone = Clone(options.tree, folder)
        while True:
            try:
                mutation = waiting.get_nowait()
            except queue.Empty:
                return
            first = before.get(mutation.key, {}).get("by", "")
            outcome = run_mutation(clone, mutation, tests, durations, first)
            line = json.dumps({"key": mutation.key, **asdict(outcome)}, ensure_ascii=False)
            with writing, options.results.open("a") as results:
                print(line, file=results)
            print(line, flush=True)

    folder = Path(tempfile.mkdtemp(prefix="luminet-mutations-"))
    outlived_by_nothing(folder=folder)
    threads = [
        threading.Thread(target=work, args=(folder / str(number),), daemon=True) for number in range(options.processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drawn(file: Path) -> dict[Mutation, frozenset[str]]:
    entries = json.loads(file.read_text())
    tests = [frozenset(entry.pop("tests")) for entry in entries]
    return {Mutation(**entry): files for entry, files in zip(entries, tests, strict=True)}


def _tests(drawn: Mapping[Mutation, frozenset[str]], coverage: Path | None) -> Callable[[Mutation], Iterable[str]]:
    """The test files that run a mutation's line, wherever the line is in the checkout."""
    if coverage is not None:
        measured = read_tests(coverage)
        return lambda mutation: covering(mutation, measured)
    known = {mutation.key: files for mutation, files in drawn.items()}
    return lambda mutation: known[mutation.key]


def _results(file: Path | None) -> dict[tuple[Any, ...], dict[str, Any]]:
    if file is None or not file.exists():
        return {}
    lines = map(json.loads, file.read_text().splitlines())
    return {tuple(each["key"]): each for each in lines}


def _compare(options: argparse.Namespace) -> int:
    before, after = _results(options.before), _results(options.after)
    for key, one in before.items():
        other = after.get(key, {"state": "not run", "by": ""})
        if one["state"] != other["state"]:
            print(f"{' · '.join(map(str, key))}: {one['state']} ({one['by']}), then {other['state']} ({other['by']})")
    kills = [sum(each["state"] == "killed" for each in results.values()) for results in (before, after)]
    print(f"killed: {kills[0]} of {len(before)}, then {kills[1]} of {len(after)}")
    return int(kills[1] < kills[0])


if __name__ == "__main__":
    main()
