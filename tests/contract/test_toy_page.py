"""A page of the web UI is added with at most five files: its view, its form, its template, its route, its line in the
list of pages."""

import shutil

import pytest

from tests.toys.tree import CHECKOUT, Tree

TOY = CHECKOUT / "tests" / "toys" / "page"
MOST_FILES = 5
NEW = {
    "blocks.py": "controlplane/dashboard/calculator/blocks.py",
    "block_forms.py": "controlplane/dashboard/calculator/block_forms.py",
    "blocks.html": "templates/dashboard/calculator/blocks.html",
}
URLS = "controlplane/dashboard/calculator/urls.py"
PAGES = "tests/web/dashboard_pages.py"
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
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy of ours with the page in it."""
    copy = Tree.copied(tmp_path_factory.mktemp("with-a-toy-page"))
    for name, place in NEW.items():
        shutil.copy(TOY / name, copy.folder / place)
    copy.insert(URLS, "blocks, ", before="calculator\n")
    copy.insert(URLS, '    path("calculator/blocks", blocks.blocks, name="blocks"),\n', before="    path(")
    copy.insert(PAGES, '    Page("blocks", "everybody"),\n', before="    # watching\n")
    return copy


def test_a_page_takes_at_most_five_files(tree: Tree) -> None:
    touched = tree.changed()
    assert touched == sorted([*NEW.values(), URLS, PAGES])
    assert len(touched) <= MOST_FILES


def test_an_added_page_is_shown_with_its_values_in_words(tree: Tree) -> None:
    printed = tree.python("-c", BROWSE, DJANGO_SETTINGS_MODULE="tests.settings")
    empty, counted, refused = printed.split("</html>")[:3]
    assert empty.startswith("200")
    assert "<h1>Blocks of a prompt</h1>" in empty
    assert "kim@example.com" in empty
    assert counted.strip().startswith("200")
    assert "1,234,567 tokens fill 77160 blocks" in counted
    assert refused.strip().startswith("422")
    assert "Enter a whole number." in refused
