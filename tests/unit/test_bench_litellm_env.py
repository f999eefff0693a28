"""The virtualenv with LiteLLM's proxy: what goes in, from where, and that it goes with everything else."""

import re
from pathlib import Path

from controlplane.stack.bootstrap import Group
from tests.bench.litellm_env import LITELLM, PINS, SIZE, VERSION, WANTED, LitellmEnvironment
from tests.support.make import CHECKOUT, planned


def test_the_proxy_is_installed_as_pinned_with_all_that_it_asks_for(tmp_path: Path) -> None:
    environment = LitellmEnvironment(tmp_path / ".venv-litellm", tmp_path / "pins")
    (step,) = environment._steps(["pip", "install"])
    assert step == (["pip", "install", "--constraint", str(tmp_path / "pins"), WANTED], SIZE.packages)
    assert environment._size() == Group("LiteLLM's proxy, to measure beside", (), 116, 190, 780)


def test_the_pins_name_versions_and_no_host() -> None:
    lines = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == SIZE.packages
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", line) for line in lines)
    assert f"litellm=={VERSION}" in lines


def test_make_clean_deletes_it_and_git_never_has_it() -> None:
    assert LITELLM.folder == CHECKOUT / ".venv-litellm"
    assert any(".venv-litellm" in line.split() for line in planned("clean") if "rm -rf" in line)
    assert ".venv-litellm" in (CHECKOUT / ".gitignore").read_text().splitlines()
