"""One tiny model for all of these tests, and one thread: two that wait for each other are slower than one."""

from pathlib import Path

import pytest

from tests.engines.families import make_model
from tests.support.torch_threads import one_thread as one_thread


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", "llama")
