"""Who runs which files of tests: every file once, those of one stack together, and about as long for everybody."""

from pathlib import Path

import pytest

from tests.suite.files import TOGETHER, faster_half, files_below, is_quick, shares


def test_every_file_goes_to_one_process() -> None:
    files = [f"tests/unit/test_{place}.py" for place in range(20)]
    shared = shares(files, 3, {file: float(place) for place, file in enumerate(files)})
    assert sorted(one for share in shared for one in share) == sorted(files)


def test_shares_take_about_the_same_time() -> None:
    seconds = {f"tests/unit/test_{place}.py": float(place + 1) for place in range(50)}
    first, second = shares(list(seconds), 2, seconds)
    assert abs(sum(seconds[one] for one in first) - sum(seconds[one] for one in second)) <= 1


@pytest.mark.parametrize("stack", TOGETHER)
def test_files_of_one_stack_stay_together(stack: str) -> None:
    files = TOGETHER[stack]
    shared = shares([*files, *(f"tests/unit/test_{place}.py" for place in range(9))], 3, {})
    assert [share for share in shared if set(files) & set(share)] == [share for share in shared if files[0] in share]
    mine = next(share for share in shared if files[0] in share)
    begin = mine.index(files[0])
    assert tuple(mine[begin : begin + len(files)]) == files


def test_more_processes_than_files_get_nothing() -> None:
    assert sorted(shares(["tests/unit/test_a.py"], 3, {})) == [[], [], ["tests/unit/test_a.py"]]


def test_arguments_name_folders_files_and_tests(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for name in ("test_a.py", "test_b.py", "helper.py"):
        (tmp_path / "tests" / "unit" / name).touch()
    both = ["tests/unit/test_a.py", "tests/unit/test_b.py"]
    assert files_below(["tests"], tmp_path) == both
    assert files_below([f"{both[1]}::test_x[a::b]", "tests/unit"], tmp_path) == [both[1], both[0]]
    assert files_below([str(tmp_path / both[0])], tmp_path / "tests" / "e2e") == [str(tmp_path / both[0])]
    with pytest.raises(FileNotFoundError, match=r"there is no tests/unit/test_c\.py"):
        files_below(["tests/unit/test_c.py"], tmp_path)


def test_faster_half_is_by_recorded_time() -> None:
    seconds = {"a": 3.0, "b": 1.0, "c": 2.0, "d": 4.0, "e": 9.0}
    assert faster_half(["a", "b", "c", "d", "e"], seconds) == {"b", "c"}


def test_unit_tests_and_contracts_are_quick() -> None:
    assert is_quick("tests/unit/test_new.py", {})
    assert is_quick("tests/contract/test_new.py", {})
    assert not is_quick("tests/e2e/test_new.py", {"tests/e2e/test_new.py": 0.1})
