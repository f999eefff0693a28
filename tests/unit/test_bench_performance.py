"""What docs/performance.md is made of: words with figures in them, reasons, what is kept, and how a row stands."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.factories import make_comparison, make_figure, make_measured, make_result, make_run
from tests.bench.figures import Target
from tests.bench.reading import run_of
from tests.bench.report.filling import NOT_MEASURED, Filling, NoSuchFigure
from tests.bench.report.kept import OtherMachine, kept_text, merged
from tests.bench.report.notes import Unclear, section_of
from tests.bench.report.numbers import BY_KEY, Number
from tests.bench.report.page import NO_REASON, Report
from tests.bench.report.readme import BEGIN, END, NONE_YET, NoPlace, with_figures
from tests.bench.report.standing import standing
from tests.bench.report.svg import Bar, Chart, svg
from tests.bench.results import RowError, RowResult, Run

WORDS = """\
# The cache
rows: C1, C2

How it is compared, [[C1: hash]].

## C1
It takes [[hash | ours]], p95 [[hash | theirs p95]], [[hash | pair]].

### short: ha* | look-up
Hashing is slow.
"""


def measured(*, key: str = "C1", bound: float = 0.5) -> RowResult:
    return replace(make_measured(key=key), figures=(make_comparison(Target("<=", bound)),))


def page_of(*rows: RowResult) -> str:
    return Report(make_run(*rows), [section_of("01-cache", WORDS)]).page()


def test_words_get_their_figures_from_the_run() -> None:
    page = page_of(measured())
    assert "How it is compared, 0.750 ×." in page
    assert "It takes 3 µs, p95 4 µs, 3 ÷ 4 µs." in page


def test_a_row_that_no_run_has_leaves_its_place_and_says_so() -> None:
    page = page_of()
    assert f"How it is compared, {NOT_MEASURED}." in page
    assert "not measured: in no run yet" in page


def test_words_about_a_figure_that_is_gone_are_a_mistake() -> None:
    with pytest.raises(NoSuchFigure, match="C1 has no figure 'hush'; it has hash"):
        Filling({"C1": measured()}).filled("[[hush]]", "C1")


def test_a_reason_stands_beside_a_figure_that_falls_short_and_nowhere_else() -> None:
    assert "**Why hash, short by 50 %:** Hashing is slow." in page_of(measured())
    assert "Hashing is slow." not in page_of(measured(bound=0.9))


def test_a_figure_that_is_short_without_a_reason_is_named() -> None:
    short = replace(measured(key="C2"), title="Hits")
    report = Report(make_run(short), [section_of("01-cache", WORDS)])
    assert report.missing_reasons() == ["C2: hash"]
    assert NO_REASON in report.page()


def test_a_shortened_row_proves_nothing() -> None:
    few = replace(measured(key="C2"), circumstances=make_measured(1.0, 2).circumstances)
    report = Report(make_run(few), [section_of("01-cache", WORDS)])
    assert report.missing_reasons() == []
    assert "proves nothing" in report.page()


@pytest.mark.parametrize("text", ["no head", WORDS.replace("## C1", "## C9"), WORDS.replace("### short: ", "### ")])
def test_words_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(Unclear, match="01-cache"):
        section_of("01-cache", text)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_what_is_kept_reads_back_the_same_but_for_its_samples() -> None:
    run = make_run(measured())
    back = run_of(json.loads(kept_text(run)))
    (row,) = back.results
    assert row.circumstances == run.results[0].circumstances
    assert row.figures[0].judged_value == 0.75
    assert row.figures[0].is_met is False
    assert row.figures[0].ours.samples == ()
    assert kept_text(back) == kept_text(run)


def test_rows_that_a_newer_run_has_not_stay_as_they_were() -> None:
    old, new = make_run(measured(), measured(key="C2")), make_run(measured(bound=0.9))
    rows = {row.key: row for row in merged(old, new).results}
    assert (list(rows), rows["C1"].figures[0].is_met) == (["C1", "C2"], True)


def test_what_was_cut_short_replaces_nothing() -> None:
    cut = replace(measured(bound=0.9), error=RowError("KeyboardInterrupt", ""))
    assert merged(make_run(measured()), make_run(cut)).results[0].error is None
    assert merged(None, make_run(cut)).results == [cut]


def test_rows_of_another_machine_do_not_mix() -> None:
    other = make_run(measured())
    other.machine = replace(other.machine, cpu="Abacus 4")
    with pytest.raises(OtherMachine, match=r"Abacus 4.*Abacus 3"):
        merged(make_run(measured()), other)


def test_the_page_says_when_rows_are_not_from_one_run() -> None:
    later = replace(measured(key="C2"))
    assert later.circumstances is not None
    apart = replace(later, circumstances=replace(later.circumstances, run="20260731T000000Z-a1b2c3d4e5"))
    assert "not from one run, but from 2" in page_of(measured(), apart)
    assert "All rows are from one run" in page_of(measured(), later)


def test_a_row_at_which_nobody_listened_is_not_called_quiet() -> None:
    row = measured()
    assert row.circumstances is not None
    deaf = replace(row, circumstances=replace(row.circumstances, noise=None))
    assert re.search(r"\| C1 \| .* \| not listened \|", page_of(deaf))
    assert re.search(r"\| C1 \| .* \| none \|", page_of(row))


def test_the_readme_leaves_out_verdicts_that_rest_on_few_repetitions() -> None:
    marks = f"{BEGIN}\n{END}"
    few = replace(measured(), circumstances=make_measured(1.0, 2).circumstances)
    assert NONE_YET in with_figures(marks, make_run(few))
    assert "| short |" in with_figures(marks, make_run(measured()))


# --- how a row stands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (None, "not measured: in no run yet"),
        (make_result(make_figure(1.0, target=Target("<=", 2.0))), "✓ met"),
        (make_result(make_figure(3.0, target=Target("<=", 2.0))), "✗ short: latency by 50 %"),
        (make_result(make_figure(3.0)), "measured"),
        (replace(make_result(), error=RowError("it died", "")), "! failed: it died"),
        (replace(make_result(make_figure(1.0)), skipped="no vLLM"), "not measured: no vLLM"),
    ],
)
def test_how_a_row_stands_is_said_in_words(row: RowResult | None, text: str) -> None:
    assert standing(Number("X1", "", ""), row).text == text


def test_where_one_target_is_enough_one_that_is_met_is_enough() -> None:
    figures = [make_figure(3.0, target=Target("<=", 2.0)), make_figure(1.0, target=Target("<=", 2.0))]
    row = make_result(*figures)
    assert standing(replace(BY_KEY["G3"]), row).word == "met"
    assert standing(replace(BY_KEY["C1"]), row).word == "short"


def test_a_readme_without_its_marks_is_named() -> None:
    with pytest.raises(NoPlace, match=r"README\.md"):
        with_figures("# Luminet", make_run())


def test_a_chart_draws_every_bar_within_its_card(tmp_path: Path) -> None:
    bars = [Bar(f"row {n}", n / 2, n, n, 2 * n, 3 * n, f"{n} ms", target=4.0, is_met=n < 4) for n in (1.0, 5.0, 80.0)]
    for is_log in (True, False):
        drawn = svg(Chart("A title & more", "ms", bars, is_log))
        assert "A title &amp; more" in drawn
        assert drawn.count('class="median"') == 3
        assert drawn.count('class="target short"') == 2
        assert drawn == svg(Chart("A title & more", "ms", bars, is_log))


def test_nothing_measured_is_still_a_page() -> None:
    assert "not measured" in Report(Run(make_run().started, make_run().commit, make_run().machine, {}), []).page()
