import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.stack import bootstrap

SCRIPT = Path(bootstrap.__file__)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = []\n[project]\nname = "x"\n')
    (tmp_path / "constraints.txt").write_text("a==1\n")
    monkeypatch.setattr(bootstrap, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMPS", tmp_path / ".venv" / "stamps.json")
    monkeypatch.setattr(bootstrap, "UNFINISHED", tmp_path / ".venv" / "unfinished")
    return tmp_path


@pytest.mark.parametrize("version", [(3, 8, 1), (3, 10, 0), (3, 14, 0)])
def test_an_unsupported_python_is_told_so_in_one_sentence(
    version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert f"is {version[0]}.{version[1]}. Install one of them" in str(caught.value.code)


def test_the_first_lines_can_be_read_by_any_python_3() -> None:
    """Whatever follows may be modern; the check itself must not need what it checks for."""
    head = SCRIPT.read_text().split("import errno")[0]
    assert "f'" not in head
    assert 'f"' not in head
    assert ":=" not in head


def test_other_tools_settings_do_not_ask_for_a_new_installation(checkout: Path) -> None:
    before = bootstrap.fingerprint()
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("[tool.ruff]\nline-length = 1\n")
    assert bootstrap.fingerprint() == before


def test_another_pin_asks_for_a_new_installation(checkout: Path) -> None:
    before = bootstrap.fingerprint()
    (checkout / "constraints.txt").write_text("a==2\n")
    assert bootstrap.fingerprint() != before


def test_too_little_space_is_told_before_anything_is_downloaded(tmp_path: Path) -> None:
    needed = bootstrap.CUDA.disk_mb + bootstrap.CUDA.download_mb
    assert bootstrap.space_problem([bootstrap.CUDA], folder=tmp_path, free_mb=needed) is None
    problem = bootstrap.space_problem([bootstrap.CUDA], folder=tmp_path, free_mb=needed - 1)
    assert problem is not None
    assert f"{needed:,} MB" in problem
    assert str(tmp_path) in problem


def test_a_full_disk_stops_it_before_anything_is_installed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "_venv_works", lambda: True)
    monkeypatch.setattr(bootstrap, "_install", lambda groups: pytest.fail("it began to install"))
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert bootstrap.main(["control"]) == 1
    assert "1 MB free" in capsys.readouterr().err


def test_a_read_only_checkout_is_one_sentence(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert bootstrap.main(["control"]) == 1
    error = capsys.readouterr().err
    assert "which is read-only" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "news"),
    [
        ("Collecting django==5.2 (from luminet)\n", "3 of about 41 packages: django==5.2"),
        ("  Downloading https://x/y/django-5.2.whl (8.1 MB)\n", "downloading django-5.2.whl (8.1 MB)"),
        ("Installing collected packages: a, b\n", "unpacking (this takes longest)"),
        ("WARNING: something\n", None),
    ],
)
def test_pips_lines_become_progress(line: str, news: str | None) -> None:
    assert bootstrap._news(line, 3, 41) == news


def test_a_disk_that_fills_up_during_the_installation_is_named() -> None:
    assert "is full" in bootstrap._why_pip_failed(["x", "OSError: [Errno 28] No space left on device"])
    assert "no matching distribution" in bootstrap._why_pip_failed(["ERROR: no matching distribution"])


def test_what_pip_left_half_recorded_is_forgotten(checkout: Path) -> None:
    packages = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    whole, half = packages / "a-1.dist-info", packages / "b-1.dist-info"
    for folder in (whole, half):
        folder.mkdir(parents=True)
    (whole / "RECORD").touch()
    bootstrap._forget_half_installed()
    assert half.exists()  # nothing was interrupted: not ours to touch
    bootstrap.UNFINISHED.touch()
    bootstrap._forget_half_installed()
    assert whole.exists()
    assert not half.exists()


def test_what_is_stamped_counts_as_installed_until_the_pins_change(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    assert not bootstrap.is_installed("control")
    bootstrap._write_stamps({"control": bootstrap.fingerprint()})
    assert bootstrap.is_installed("control")
    (checkout / "constraints.txt").write_text("a==3\n")
    assert not bootstrap.is_installed("control")


def test_an_environment_that_had_to_be_made_again_is_filled_again(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamps go with it: what they said was installed is not there any more."""
    (checkout / ".venv").mkdir()
    bootstrap._write_stamps({"control": bootstrap.fingerprint()})
    made = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(bootstrap, "_venv_works", lambda: False)
    monkeypatch.setattr(bootstrap, "run_quietly", lambda command: made)
    installed: list[bootstrap.Group] = []
    monkeypatch.setattr(bootstrap, "_install", installed.extend)
    bootstrap.ensure(["control"])
    assert installed == [bootstrap.GROUPS["control"]]
    assert bootstrap.is_installed("control")


@pytest.mark.parametrize(("wanted", "group"), [(["torch", "nvidia-cublas"], "CUDA"), (["torch", "numpy"], "CPU")])
def test_the_size_of_the_engine_is_that_of_the_build_pip_chose(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[str], group: str
) -> None:
    def pip(command: list[str]) -> "subprocess.CompletedProcess[str]":
        report = {"install": [{"metadata": {"name": name}} for name in wanted]}
        Path(command[command.index("--report") + 1]).write_text(json.dumps(report))
        return subprocess.CompletedProcess(command, 0, "", "")

    (checkout / ".venv").mkdir()
    monkeypatch.setattr(bootstrap, "run_quietly", pip)
    assert group in bootstrap._chosen_by_pip("engine").what


def test_every_group_names_extras_that_exist() -> None:
    import tomllib

    extras = tomllib.loads((SCRIPT.parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for group in bootstrap.GROUPS.values():
        assert set(group.extras) <= set(extras)
