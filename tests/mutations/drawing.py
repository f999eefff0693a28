"""Which mutations are run: as many from each package, so that a small one is not left out, by a fixed seed.

At most one from a function: more would ask the same tests again.
"""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.mutations.editing import Mutation, mutations_of

SEED = 25
FROM_EACH = 12
PACKAGES = (
    "tenants",
    "engine_agent/cache",
    "controlplane/rollouts",
    "controlplane/analytics",
    "engine_agent/gateway",
)
Tests = Mapping[str, Mapping[int, frozenset[str]]]  # file → line → the test files that run it


def read_tests(data_file: Path) -> Tests:
    """Of coverage.py's data, whose contexts are the paths of test files."""
    from coverage import CoverageData

    data = CoverageData(str(data_file))
    data.read()
    found: dict[str, dict[int, frozenset[str]]] = {}
    for measured in data.measured_files():
        if (file := _in_checkout(measured)) is None:
            continue
        lines = found.setdefault(file, {})
        for line, contexts in data.contexts_by_lineno(measured).items():
            lines[line] = lines.get(line, frozenset()) | {context for context in contexts if context}
    return found


def _in_checkout(measured: str) -> str | None:
    """From any checkout: what follows the folder that holds the package."""
    for package in PACKAGES:
        if (at := measured.rfind(f"/{package}/")) >= 0 and "/migrations/" not in measured:
            return measured[at + 1 :]
    return None


def candidates(tree: Path) -> dict[str, list[Mutation]]:
    """By package."""
    return {
        package: [
            mutation
            for path in sorted((tree / package).rglob("*.py"))
            if "migrations" not in path.parts
            for mutation in mutations_of(path.relative_to(tree).as_posix(), path.read_bytes())
        ]
        for package in PACKAGES
    }


def covering(mutation: Mutation, tests: Tests) -> frozenset[str]:
    lines = tests.get(mutation.file, {})
    return lines.get(mutation.line, frozenset()) | lines.get(mutation.statement, frozenset())


def draw(mutations: Mapping[str, Iterable[Mutation]], tests: Tests, *, seed: int = SEED) -> list[Mutation]:
    drawn = []
    for package in sorted(mutations):
        covered = [mutation for mutation in mutations[package] if covering(mutation, tests)]
        random.Random(f"{seed} {package}").shuffle(covered)
        functions = dict[tuple[str, str], Mutation]()
        for mutation in covered:
            functions.setdefault((mutation.file, mutation.function), mutation)
        drawn += list(functions.values())[:FROM_EACH]
    return drawn


def find_again(mutation: Mutation, source: bytes) -> Mutation | None:
    """The same in a source whose lines may have moved."""
    return next((each for each in mutations_of(mutation.file, source) if each.key == mutation.key), None)
