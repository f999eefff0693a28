"""How the C libraries come to be, and what happens where they cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.dispatch import implementation
from kernels.native import building
from kernels.native.building import NotBuilt, built, cache_folder, find_compiler
from kernels.native.library import ENVIRONMENT, native

pytestmark = pytest.mark.usefixtures("in_c")

TELL = "from kernels.native.library import status; print(status())"
SHORT = "int answer(void) { return 42; }\n"


def told(program: str, environment: dict[str, str]) -> str:
    """What a new process says."""
    changed = dict(os.environ) | environment
    return subprocess.run(
        [sys.executable, "-c", program], env=changed, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache that nothing is in yet, and one short source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "short.c").write_text(SHORT)
    monkeypatch.setattr(building, "SOURCES", sources)
    return tmp_path


def test_torch_computes_where_there_is_no_compiler(tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path), "CC": "", "XDG_CACHE_HOME": str(tmp_path)}
    assert told(TELL, without) == "torch: no C compiler here (cc, gcc, clang)\n"


def test_torch_computes_where_the_compiler_fails(tmp_path: Path) -> None:
    said = told(TELL, {"CC": "false", "XDG_CACHE_HOME": str(tmp_path)})
    assert said.startswith("torch: ")
    assert "false" in said


def test_it_can_be_switched_off() -> None:
    assert told(TELL, {"LUMINET_NATIVE": "0"}) == "torch: switched off by LUMINET_NATIVE=0\n"


def test_ops_run_in_torch_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert implementation(torch.zeros(1), has_native=True) == "native"
    monkeypatch.setenv(ENVIRONMENT, "0")
    native.cache_clear()
    try:
        assert implementation(torch.zeros(1), has_native=True) == "torch"
    finally:
        native.cache_clear()


def test_a_library_is_compiled_once(home: Path) -> None:
    library = built("short.c")
    compiled_at = library.stat().st_mtime_ns
    assert library.parent == home / "cache" / "luminet" / "kernels"
    assert built("short.c") == library
    assert library.stat().st_mtime_ns == compiled_at


def test_another_source_other_flags_and_another_processor_are_other_libraries(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {built("short.c"), built("short.c", "-DOTHER")}
    (building.SOURCES / "short.c").write_text(SHORT + "\n")
    found.add(built("short.c"))
    monkeypatch.setattr(building, "processor", lambda: "another")
    found.add(built("short.c"))
    assert len(found) == 4


def test_what_cannot_be_compiled_says_why_and_leaves_nothing(home: Path) -> None:
    (building.SOURCES / "short.c").write_text("int answer(void) { return unheard_of; }\n")
    with pytest.raises(NotBuilt, match="unheard_of"):
        built("short.c")
    assert not list(cache_folder().iterdir())


def test_nobody_else_may_write_what_is_loaded(home: Path) -> None:
    library = built("short.c")
    assert library.parent.stat().st_mode & 0o777 == 0o700
    library.parent.chmod(0o777)
    elsewhere = built("short.c")
    assert elsewhere.parent != library.parent
    assert elsewhere.parent.stat().st_mode & 0o777 == 0o700


def test_a_library_that_others_may_write_to_is_compiled_anew(home: Path) -> None:
    library = built("short.c")
    library.write_bytes(b"not ours")
    library.chmod(0o777)
    assert built("short.c") == library
    assert library.read_bytes() != b"not ours"


def test_a_home_that_cannot_be_written_to_is_not_needed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "cache").write_text("a file")
    assert built("short.c").exists()


def test_processes_that_build_at_once_get_one_whole_library(tmp_path: Path) -> None:
    changed = dict(os.environ) | {"XDG_CACHE_HOME": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", TELL], env=changed, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0].startswith("C, by ") for process in processes] == [True, True]
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "luminet" / "kernels").iterdir())
    assert names == ["attention", "writing"]


def test_the_compiler_that_is_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "sh")
    assert Path(find_compiler()).name == "sh"
