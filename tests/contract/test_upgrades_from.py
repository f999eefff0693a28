"""The commit that upgrades are tested from is one that this code came from; and how it is told that it is not here."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from controlplane.settings.env import CHECKOUT
from tests.upgrading.code import UPGRADES_FROM, NoHistory, commit_before, git, history_ensure


def test_the_file_names_one_commit_that_this_code_came_from() -> None:
    commit = commit_before()
    assert re.fullmatch("[0-9a-f]{40}", commit), UPGRADES_FROM
    try:
        history_ensure(commit)
        base = git(CHECKOUT, "merge-base", commit, "HEAD").decode().strip()
    except NoHistory as reason:
        pytest.skip(f"nothing to compare with: {reason}")
    except subprocess.CalledProcessError:
        if git(CHECKOUT, "rev-parse", "--is-shallow-repository").strip() == b"true":
            pytest.skip("this clone is shallow: what leads to that commit was cut off")
        raise
    assert base == commit, f"{UPGRADES_FROM}: {commit} is no ancestor of HEAD"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With two commits."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name in ("first", "second"):
        (folder / name).write_text(name)
        git(folder, "add", name)
        git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", name)
    return folder


def first_of(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD~1").decode().strip()


def test_a_whole_clone_has_it(repository: Path) -> None:
    history_ensure(first_of(repository), repository)


def test_a_shallow_clone_says_how_to_bring_it(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(NoHistory, match=r"shallow and lacks .* git fetch --unshallow"):
        history_ensure(first_of(repository), tmp_path / "shallow")


def test_an_unpacked_archive_says_that_it_is_no_clone_also_inside_another_repository(repository: Path) -> None:
    inside = repository / "unpacked"
    inside.mkdir()
    for folder in (inside, repository.parent):
        with pytest.raises(NoHistory, match="it is no clone"):
            history_ensure(first_of(repository), folder)


def test_a_commit_that_a_whole_clone_lacks_is_no_excuse(repository: Path) -> None:
    """It is somebody's mistake: taking the code of that commit out of git then fails."""
    history_ensure("0" * 40, repository)
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "archive", "0" * 40)
