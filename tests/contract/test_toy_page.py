"""A page of the web UI is added with at most five files: its view, its form, its template, its route, its line in the
list of pages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
TOY = CHECKOUT / "tests" / "toys" / "page"
PARTS = ("controlplane", "engine_agent", "kernels", "tenants", "templates", "tests", "pyproject.toml")
MOST_FILES = 5
NEW = {
    "blocks.py": "controlplane/dashboard/calculator/blocks.py",
    "block_forms.py": "controlplane/dashboard/calculator/block_forms.py",
    "blocks.html": "templates/dashboard/calculator/blocks.html",
}
CHANGED = {
    "controlplane/dashboard/calculator/urls.py": (
        ("calculator import calculator\n", "calculator import blocks, calculator\n"),
        ("    path(", '    path("calculator/blocks", blocks.blocks, name="blocks"),\n    path('),
    ),
    "tests/web/dashboard_pages.py": (("    # watching\n", '    # watching\n    Page("blocks", "everybody"),\n'),),
}
BROWSE = """
import django

django.setup()
from django.test import Client, override_settings
from controlplane.dashboard import urls
from tenants.models import User
from tests.web.dashboard_pages import PAGES


def signed_in(get_response):
    def answer(request):
        request.user = User(pk=1, email="kim@example.com", is_operator=True)
        return get_response(request)
    return answer


assert "blocks" in [one.view for one in PAGES]
with override_settings(MIDDLEWARE=["__main__.signed_in"]):
    for query in ("", "?tokens=1234567", "?tokens=none"):
        answer = Client().get(f"/calculator/blocks{query}")
        print(answer.status_code, answer.content.decode())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of ours with the page in it."""
    copy = tmp_path_factory.mktemp("with-a-toy-page")
    for part in PARTS:
        source = CHECKOUT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__", ".luminet"))
        else:
            shutil.copy(source, copy / part)
    for name, place in NEW.items():
        shutil.copy(TOY / name, copy / place)
    for place, changes in CHANGED.items():
        text = (copy / place).read_text()
        for before, after in changes:
            assert text.count(before) >= 1, f"{place} has no {before!r}"
            text = text.replace(before, after, 1)
        (copy / place).write_text(text)
    return copy


def contents(root: Path) -> dict[str, bytes]:
    files = (one for part in PARTS for one in ((root / part).rglob("*") if (root / part).is_dir() else [root / part]))
    kept = (one for one in files if one.is_file() and not {"__pycache__", ".luminet"} & {*one.parts})
    return {str(one.relative_to(root)): one.read_bytes() for one in kept}


def test_a_page_takes_at_most_five_files(tree: Path) -> None:
    before, after = contents(CHECKOUT), contents(tree)
    touched = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert touched == {*NEW.values(), *CHANGED}
    assert len(touched) <= MOST_FILES


def test_an_added_page_is_shown_with_its_values_in_words(tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(
        [sys.executable, "-c", BROWSE], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    empty, counted, refused = done.stdout.split("</html>")[:3]
    assert empty.startswith("200")
    assert "<h1>Blocks of a prompt</h1>" in empty
    assert "kim@example.com" in empty
    assert counted.strip().startswith("200")
    assert "1,234,567 tokens fill 77160 blocks" in counted
    assert refused.strip().startswith("422")
    assert "Enter a whole number." in refused
