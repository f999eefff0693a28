"""One tiny model for all of these tests, and one thread: two that wait for each other are slower than one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engines.families import make_model


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", "llama")
