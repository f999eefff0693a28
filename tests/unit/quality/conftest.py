"""One model for all tests, one thread, and one run of the suite that several tests look at."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine_agent.tools.quality.artefact import Artefact
from engine_agent.tools.quality.suite import QUICK, measure
from tests.support.torch_threads import one_thread as one_thread
from tests.unit.quality.making import make_model

PLAN = replace(QUICK, formats=("int8", "nvfp4"), tokens=160, needle_keys=256)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def steps() -> list[tuple[str, int, int]]:
    """What the run of the suite said of its progress."""
    return []


@pytest.fixture(scope="session")
def artefact(folder: Path, steps: list[tuple[str, int, int]]) -> Artefact:
    return measure(folder, folder / "heldout.jsonl", PLAN, on_step=lambda *step: steps.append(step))
