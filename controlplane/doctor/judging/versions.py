"""Whether versions fit: Python's, ours, packages', servers'."""

import re
from collections.abc import Mapping, Sequence

from controlplane.doctor.finding import Finding, broken, counted, not_examined, note, ok, warning

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_POSTGRES = 18
OLDEST_REDIS = (6, 2)
NAMED = 4


def python(found: Sequence[int]) -> Finding:
    told = ".".join(map(str, found))
    if OLDEST_PYTHON <= tuple(found[:2]) <= NEWEST_PYTHON:
        return ok("python", f"Python {told}")
    return broken("python", f"Python {told} is none of 3.11, 3.12 and 3.13", "make PYTHON=/path/to/python3.12 up")


def packages(missing: Sequence[str], *, install: str) -> Finding:
    if not missing:
        return ok("packages", "All packages that this place needs are installed")
    told = counted(len(missing), "package is", "packages are")
    return broken("packages", f"{told} not installed for this Python: {_named(missing)}", install)


def drift(installed: Mapping[str, str], pinned: Mapping[str, str], *, install: str) -> Finding:
    """Names as PyPI spells them. A local version (+cpu) is a build of the same one."""
    off = [
        f"{name} {installed[name]} instead of {wanted}"
        for name, wanted in sorted(pinned.items())
        if name in installed and installed[name].split("+")[0] != wanted
    ]
    count = sum(name in installed for name in pinned)
    if not off:
        return ok("constraints", f"{count} installed packages are as constraints.txt pins them")
    told = counted(len(off), "package is", "packages are")
    return warning("constraints", f"{told} not as constraints.txt pins them: {_named(off)}", install)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    found = (line.partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {canonical(name.strip()): version.strip() for name, _, version in found}


def luminet(ours: str, theirs: str | None) -> Finding:
    """The control plane's, where it has told its own."""
    if theirs is None or theirs == ours:
        return ok("luminet", f"Luminet {ours}" + ("" if theirs is None else ", as the control plane"))
    if theirs.split(".")[:2] == ours.split(".")[:2]:
        return note("luminet", f"Luminet {ours} here, {theirs} at the control plane: they work together")
    do = f"install Luminet {theirs} here"
    return warning("luminet", f"Luminet {ours} here, {theirs} at the control plane", do)


def postgres(number: int) -> Finding:
    """`number` as PostgreSQL tells it: 180001 is 18.1."""
    told = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    if number // 10_000 >= OLDEST_POSTGRES:
        return ok("postgres", told)
    do = f"upgrade the server to PostgreSQL {OLDEST_POSTGRES} or newer (pg_upgrade, or dump and restore)"
    return broken("postgres", f"{told} is older than {OLDEST_POSTGRES}, which Luminet needs", do)


def redis(told: str) -> Finding:
    numbers = tuple(int(one) for one in re.findall(r"\d+", told)[:2])
    if numbers >= OLDEST_REDIS:
        return ok("redis-version", f"Redis {told}")
    return broken("redis-version", f"Redis {told} is older than 6.2, which Luminet needs", "upgrade the server")


def engine_packages(torch: str | None, *, is_wanted: bool, is_installing: bool, install: str) -> Finding:
    if torch is not None:
        return ok("torch", f"PyTorch {torch}, for engines")
    if not is_wanted:
        return note("torch", "No PyTorch here, and LUMINET_RUN_ENGINE or LUMINET_INSTALL_ENGINE asks for none")
    if is_installing:
        return note("torch", "The engines' packages are being installed; agents serve once they are")
    return warning("torch", "The engines' packages are not installed: agents cannot serve", install)


def vllm(found: bool, *, is_wanted: bool) -> Finding:
    if found:
        return ok("vllm", "vLLM has its environment, .venv-vllm")
    if is_wanted:
        return broken("vllm", "LUMINET_BACKENDS asks for vLLM, and .venv-vllm has none", "make up BACKENDS=paged,vllm")
    return not_examined("vllm", "vLLM is not asked for here")


def model(folder: str, problem: str | None) -> Finding:
    if problem is None:
        return ok("model", f"The model in {folder} can be read")
    return broken(
        "model", f"The model in {folder} cannot be read: {problem}", "git checkout -- engine_agent/demo/model"
    )


def _named(ones: Sequence[str]) -> str:
    more = f" and {len(ones) - NAMED} more" if len(ones) > NAMED else ""
    return ", ".join(ones[:NAMED]) + more
