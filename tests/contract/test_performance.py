"""docs/performance.md, its pictures and the README's figures are made of the kept run, and nothing is left out."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.bench.earlier import KEPT
from tests.bench.reading import read_run
from tests.bench.report.__main__ import FOLDER, NOTES, PAGE, README, written
from tests.bench.report.notes import sections_in
from tests.bench.report.numbers import BY_KEY, NUMBERS
from tests.bench.report.page import Report, anchor
from tests.bench.report.readme import BEGIN, END, KEYS
from tests.bench.report.standing import is_shortened
from tests.bench.results import Run

# What NUMBERS.md, which is no part of this repository, lists; all but H1 and H2 need no GPU.
WANTED = [
    "C1",
    "C2",
    "C3",
    "C4",
    "C5",
    "E1",
    "E2",
    "E3",
    "E4",
    "E5",
    "Q1",
    "Q2",
    "G1",
    "G2",
    "G3",
    "P1",
    "P2",
    "A1",
    "A2",
    "A3",
    "A4",
    "W1",
    "W2",
    "S1",
    "S2",
    "S3",
    "S4",
    "H1",
    "H2",
    "H3",
]
MOST_BYTES, MOST_PICTURE_BYTES = 300_000, 500_000
MAKE = "`make performance` writes it"


@pytest.fixture(scope="module")
def run() -> Run:
    return read_run(KEPT)


def test_the_page_and_the_pictures_are_what_is_made_of_the_kept_run(run: Run) -> None:
    made = written(run)
    assert [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text] == [], MAKE
    assert {path for path in made if path.suffix == ".svg"} == set(FOLDER.glob("*.svg")), "a picture that nobody makes"


def test_every_row_wanted_and_every_row_there_is_stands_on_the_page() -> None:
    assert [one.key for one in NUMBERS] == WANTED
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in BY_KEY if f"\n| [{key}](#" not in page] == [], "in the table of all rows"
    assert [key for key in BY_KEY if f"\n### {key} · " not in page] == [], "with a heading of its own"


def test_what_the_run_has_is_still_measured(run: Run) -> None:
    assert {row.key for row in run.results} <= set(BY_KEY)


def test_figures_of_the_table_are_figures_of_the_run(run: Run) -> None:
    """One that was renamed would vanish from the table without a word."""
    for row in (one for one in run.results if one.status == "measured"):
        names = {figure.name for figure in row.figures}
        assert {shown.figure for shown in BY_KEY[row.key].shown} <= names, row.key


def test_every_figure_that_falls_short_has_its_reason(run: Run) -> None:
    assert Report(run, sections_in(NOTES)).missing_reasons() == []


def test_links_within_the_page_lead_somewhere() -> None:
    page = PAGE.read_text(encoding="utf-8")
    places = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= places


def test_what_is_kept_is_small_and_names_nobodys_folders() -> None:
    content = KEPT.read_text(encoding="utf-8")
    assert KEPT.stat().st_size <= MOST_BYTES
    assert '"samples"' not in content
    assert re.findall(r"/(?:home|root|tmp|work|Users)/[^\"\s]*", content) == []
    assert sum(path.stat().st_size for path in FOLDER.glob("*.svg")) < MOST_PICTURE_BYTES


def test_a_picture_is_told_in_words_and_serves_both_themes(subtests: pytest.Subtests) -> None:
    pictures = sorted(FOLDER.glob("*.svg"))
    assert pictures
    for picture in pictures:
        with subtests.test(msg=picture.stem):
            root = ElementTree.parse(picture).getroot()
            names = [child.tag.rpartition("}")[2] for child in root]
            assert names[:2] == ["title", "desc"]
            assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8")


def test_the_readme_has_figures_of_the_report_unless_they_prove_nothing(run: Run) -> None:
    figures = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    for key in KEYS:
        row = next((one for one in run.results if one.key == key), None)
        assert (BY_KEY[key].what in figures) is (row is not None and not is_shortened(row)), key


def test_first_screen_says_whether_a_gpu_ran(subtests: pytest.Subtests) -> None:
    for document in (README, README.parent / "docs" / "tour.md"):
        with subtests.test(msg=document.name):
            first_screen = "\n".join(document.read_text(encoding="utf-8").splitlines()[:20])
            is_missing = "no GPU has run it yet" in PAGE.read_text(encoding="utf-8")
            assert ("No GPU has run it yet" in first_screen) is is_missing
