"""Check versions of Python, Luminet, packages and servers, and the needs of a stack's engines."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions
from importlib.metadata import version as installed_version
from pathlib import Path

from controlplane.client.shapes import shaped
from controlplane.common.version import version
from controlplane.doctor.broker import redis_seen
from controlplane.doctor.context import Context
from controlplane.doctor.database import database_seen
from controlplane.doctor.finding import Finding, broken, counted, not_examined, note, ok, warning
from controlplane.doctor.place import Place, shown
from controlplane.doctor.views import answering_web, rest_client
from controlplane.fleet.shipped import DEMO_MODEL
from controlplane.settings.env import CHECKOUT
from engine_agent.contracts.words import listed

EXTRAS = {"stack": "control,embedded,agent", "processes": "control", "agent": "agent", "remote": "control"}
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_POSTGRES = 18
OLDEST_REDIS = (6, 2)
MOST_NAMED = 4


def here(context: Context) -> Iterator[Finding]:
    installation = context.place
    yield python_finding(sys.version_info[:3])
    if installation.kind == "remote":
        return
    yield luminet_finding(version(), None)
    if installation.missing:
        count, names = (
            counted(len(installation.missing), "package is", "packages are"),
            listed(installation.missing, MOST_NAMED),
        )
        install = _install_command(installation, is_missing=True)
        yield broken("packages", f"{count} not installed for this Python: {names}", install)
    else:
        yield ok("packages", "All packages that this place needs are installed")


def python_finding(numbers: Sequence[int]) -> Finding:
    name = ".".join(map(str, numbers))
    if OLDEST_PYTHON <= tuple(numbers[:2]) <= NEWEST_PYTHON:
        return ok("python", f"Python {name}")
    return broken("python", f"Python {name} is none of 3.11, 3.12 and 3.13", "make PYTHON=/path/to/python3.12 up")


def luminet_finding(our_version: str, their_version: str | None) -> Finding:
    """Compare our version with `their_version`, the control plane's; None: there is no other to compare with."""
    if their_version is None or their_version == our_version:
        return ok("luminet", f"Luminet {our_version}" + ("" if their_version is None else ", as the control plane"))
    if their_version.split(".")[:2] == our_version.split(".")[:2]:
        return note("luminet", f"Luminet {our_version} here, {their_version} at the control plane: they work together")
    return warning(
        "luminet",
        f"Luminet {our_version} here, {their_version} at the control plane",
        f"install Luminet {their_version} here",
    )


def control_plane(context: Context) -> Iterator[Finding]:
    """Compare with the version in the control plane's OpenAPI document."""
    answering_web(context)
    document = rest_client(context).get("/openapi.json").body
    yield luminet_finding(version(), shaped(document, {"info": {"version": str}})["info"]["version"])


def constraints(context: Context) -> Iterator[Finding]:
    pinned = CHECKOUT / "constraints.txt"
    if not pinned.is_file():
        yield not_examined("constraints", "no constraints.txt lies beside this Luminet")
        return
    installed = {canonical(package.name): package.version for package in distributions() if package.name}
    install = _install_command(context.place)
    yield constraints_finding(installed, pins(pinned.read_text(encoding="utf-8")), install=install)


def constraints_finding(installed: Mapping[str, str], pinned: Mapping[str, str], *, install: str) -> Finding:
    """Compare installed packages with their pins. Names are normalised; a local version (+cpu) counts as equal."""
    differing = [
        f"{name} {installed[name]} instead of {version}"
        for name, version in sorted(pinned.items())
        if name in installed and installed[name].split("+")[0] != version
    ]
    if not differing:
        count = sum(name in installed for name in pinned)
        return ok("constraints", f"{count} installed packages are as constraints.txt pins them")
    count_text, names = counted(len(differing), "package is", "packages are"), listed(differing, MOST_NAMED)
    return warning("constraints", f"{count_text} not as constraints.txt pins them: {names}", install)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    lines = (line.partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {canonical(name.strip()): version.strip() for name, _, version in lines}


def servers(context: Context) -> Iterator[Finding]:
    database, redis = database_seen(context), redis_seen(context)
    if database.problem is None:
        yield postgres_finding(database.version)
    if redis.problem is None:
        yield redis_finding(redis.version)


def postgres_finding(number: int) -> Finding:
    """Evaluate PostgreSQL's version. `number`: as the server reports it: 180001 is 18.1."""
    name = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    if number // 10_000 >= OLDEST_POSTGRES:
        return ok("postgres", name)
    do = f"upgrade the server to PostgreSQL {OLDEST_POSTGRES} or newer (pg_upgrade, or dump and restore)"
    return broken("postgres", f"{name} is older than {OLDEST_POSTGRES}, which Luminet needs", do)


def redis_finding(version: str) -> Finding:
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= OLDEST_REDIS:
        return ok("redis-version", f"Redis {version}")
    return broken("redis-version", f"Redis {version} is older than 6.2, which Luminet needs", "upgrade the server")


def engine_packages(context: Context) -> Iterator[Finding]:
    """Check the packages and the model that a stack's agents compute with."""
    config = context.place.config
    if config is None:
        return
    yield _torch(is_wanted=config.installs_engine and config.engine_port is not None)
    if problem := _model_problem(DEMO_MODEL):
        says = f"The model in {shown(DEMO_MODEL)} cannot be read: {problem}"
        yield broken("model", says, "git checkout -- engine_agent/demo/model")
    else:
        yield ok("model", f"The model in {shown(DEMO_MODEL)} can be read")
    if any((CHECKOUT / ".venv-vllm").glob("lib/python*/site-packages/vllm")):
        yield ok("vllm", "vLLM has its environment, .venv-vllm")
    elif any(agent.backend == "vllm" for agent in config.agents):
        says = "LUMINET_BACKENDS asks for vLLM, and .venv-vllm has none"
        yield broken("vllm", says, "make up BACKENDS=paged,vllm")


def _torch(*, is_wanted: bool) -> Finding:
    try:
        return ok("torch", f"PyTorch {installed_version('torch')}, for engines")
    except PackageNotFoundError:
        pass
    if not is_wanted:
        return note("torch", "No PyTorch here, and LUMINET_RUN_ENGINE or LUMINET_INSTALL_ENGINE asks for none")
    if (Path(sys.prefix) / "luminet-unfinished").exists():
        return note("torch", "The engines' packages are being installed; agents serve once they are")
    says = "The engines' packages are not installed: agents cannot serve"
    return warning("torch", says, "make up (it installs them beside)")


def _model_problem(folder: Path) -> str | None:
    """Return why an engine could not open the model, or None, without loading it."""
    try:
        for name in ("config.json", "tokenizer.json"):
            (folder / name).read_bytes()
        weights = [*folder.glob("*.safetensors")]
        if not weights:
            return "it has no *.safetensors"
        for file in weights:
            with file.open("rb") as opened:
                opened.read(8)
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    return None


def _install_command(installation: Place, *, is_missing: bool = False) -> str:
    virtualenv = CHECKOUT / ".venv"
    if installation.kind == "stack" and is_missing:
        if Path(sys.prefix) != virtualenv and (virtualenv / "bin" / "python").exists():
            return f"use the Python that has them: {shown(virtualenv / 'bin' / 'luminet')} doctor"
        return "make up"
    requirement = f"{CHECKOUT}[{EXTRAS[installation.kind]}]"
    return f"{sys.executable} -m pip install -c {CHECKOUT / 'constraints.txt'} -e '{requirement}'"
