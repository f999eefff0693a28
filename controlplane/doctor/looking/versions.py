"""What is installed here, and what servers and the control plane say they are."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions
from importlib.metadata import version as installed_version
from pathlib import Path

from controlplane.common.version import version
from controlplane.doctor.finding import Finding, not_examined
from controlplane.doctor.judging import versions as judging
from controlplane.doctor.place import Place
from controlplane.fleet.shipped import DEMO_MODEL
from controlplane.settings.env import CHECKOUT

EXTRAS = {"stack": "control,embedded,agent", "processes": "control", "agent": "agent", "remote": "control"}
OF_A_MODEL = ("config.json", "tokenizer.json")


def here(place: Place) -> Iterator[Finding]:
    yield judging.python(sys.version_info[:3])
    if place.kind == "remote":
        return
    yield judging.luminet(version(), None)
    yield judging.packages(place.missing, install=_install(place, missing=True))


def constraints(place: Place) -> Iterator[Finding]:
    pinned = CHECKOUT / "constraints.txt"
    if not pinned.is_file():
        yield not_examined("constraints", "no constraints.txt lies beside this Luminet")
        return
    installed = {judging.canonical(one.name): one.version for one in distributions() if one.name}
    yield judging.drift(installed, judging.pins(pinned.read_text(encoding="utf-8")), install=_install(place))


def engine(place: Place) -> Iterator[Finding]:
    """Of a stack: what its agents compute with."""
    config = place.config
    if config is None:
        return
    is_wanted = config.installs_engine and config.engine_port is not None
    installing = (Path(sys.prefix) / "luminet-unfinished").exists()
    yield judging.engine_packages(
        _installed("torch"), is_wanted=is_wanted, is_installing=installing, install="make up (it installs them beside)"
    )
    yield judging.model(_shown(DEMO_MODEL), _model_problem(DEMO_MODEL))
    environment = CHECKOUT / ".venv-vllm"
    found = any(environment.glob("lib/python*/site-packages/vllm"))
    is_asked = any(agent.backend == "vllm" for agent in config.agents)
    if found or is_asked:
        yield judging.vllm(found, is_wanted=is_asked)


def _install(place: Place, *, missing: bool = False) -> str:
    if place.kind == "stack" and missing:
        beside = CHECKOUT / ".venv" / "bin" / "python"
        if Path(sys.prefix) != CHECKOUT / ".venv" and beside.exists():
            return f"use the Python that has them: {_shown(CHECKOUT / '.venv' / 'bin' / 'luminet')} doctor"
        return "make up"
    where = f"{CHECKOUT}[{EXTRAS[place.kind]}]"
    return f"{sys.executable} -m pip install -c {CHECKOUT / 'constraints.txt'} -e '{where}'"


def _installed(name: str) -> str | None:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return None


def _model_problem(folder: Path) -> str | None:
    """Whether an engine could open it, without loading any of it."""
    try:
        for name in OF_A_MODEL:
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


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
