"""What a bench shows and keeps: words, table, progress, JSON, plots, and the machine it was measured on."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import machine
from tests.bench.factories import (
    QUIET,
    make_comparison,
    make_figure,
    make_measured,
    make_registry,
    make_result,
    make_run,
    results_of,
)
from tests.bench.figures import Figure, Target
from tests.bench.files import write_json
from tests.bench.measuring import Bench
from tests.bench.noise import Listening
from tests.bench.plots import is_in_reach, panels, write_plots
from tests.bench.progress import Progress
from tests.bench.reading import Unreadable, newest_first, read_run
from tests.bench.table import markdown, terminal
from tests.bench.words import target_text, verdict
from tests.unit.test_client_terminal import Tty

# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_verdict_says_by_how_much_a_figure_is_short(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Figure, str]] = [
        (make_figure(1.0), "– no target"),
        (make_figure(1.0, target=Target("<=", 2.0)), "✓ met"),
        (make_figure(2.5, target=Target("<=", 2.0)), "✗ short by 25 %"),
        (make_figure(2.001, target=Target("<=", 2.0)), "✗ short by less than 0.1 %"),
        (make_figure(7.0, target=Target("<=", 2.0)), "✗ short by a factor of 3.50"),
        (make_figure(6.0, target=Target(">=", 8.0)), "✗ short by 25 %"),
        (make_figure(1.0, 5.0, target=Target("<=", 4.0, of="max")), "✗ short by 25 % (max 5 ms)"),
        (make_figure(1.0, 3.0, target=Target("<=", 4.0, of="max")), "✓ met (max 3 ms)"),
        (make_figure(3.0, unit="tokens", target=Target("==", 0.0)), "✗ short by 3 tokens"),
        (make_figure(36.25, unit="%", target=Target("==", 37.0, tolerance=0.5)), "✗ short by 0.250 points"),
    ]
    for figure, text in cases:
        with subtests.test(msg=text):
            assert verdict(figure) == text


def test_targets_are_shown_as_they_were_written() -> None:
    assert target_text(Target("<=", 0.5), "×") == "≤ 0.5 ×"
    assert target_text(Target("<=", 20.0, of="p95"), "ms") == "p95 ≤ 20 ms"
    assert target_text(Target("==", 37.4, tolerance=0.5), "%") == "= 37.4 ± 0.5 %"


def test_the_table_shows_both_sides_and_the_ratio_with_their_units() -> None:
    text = terminal(make_run(make_result(make_comparison(Target("<=", 0.5)))), colour=False)
    ours, theirs, ratio = (line for line in text.splitlines() if line.startswith("    hash"))
    assert re.search(r"hash · ours +3 +3 µs ", ours)
    assert re.search(r"hash · vLLM 0.32 +3 +4 µs ", theirs)
    assert re.search(r"hash · ours ÷ theirs +3 +0.750 × .* ≤ 0.5 ×   ✗ short by 50 %$", ratio)
    assert ours.index("µs") == theirs.index("µs")
    assert "tokens 4,096" in text


def test_the_table_shows_skips_errors_and_notes() -> None:
    text = terminal(make_run(*results_of(make_registry()).values()), colour=False)
    assert "– not measured: no GPU here" in text
    assert "! failed: RuntimeError: pool is empty" in text
    assert "note: torch was imported" in text
    assert "figures: 3 (0 met, 1 short, 2 without target) · rows: 4 (1 measured, 1 not measured, 2 failed)" in text


def test_the_table_says_where_it_was_measured() -> None:
    text = terminal(make_run(), colour=False)
    for fact in (
        "a1b2c3d4e5 with uncommitted changes",
        "Abacus 3",
        "7.8 GiB",
        "no GPU",
        "Python 3.11.9",
        "django 5.2.19",
    ):
        assert fact in text


def test_colour_changes_nothing_but_colour() -> None:
    run = make_run(*results_of(make_registry()).values())
    plain, coloured = terminal(run, colour=False), terminal(run, colour=True)
    assert "\x1b[" not in plain
    assert "\x1b[31m✗ short by 50 %\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_markdown_escapes_pipes_and_shows_the_plot() -> None:
    figure = Bench("X1").record("a | b", unit="ms", values=[1.5])
    text = markdown(make_run(make_result(figure)), {"X1": "x1.png"})
    assert r"| a \| b | 1 | 1.50 ms |" in text
    assert "![X1: A title](x1.png)" in text


def test_progress_is_one_updating_line_on_a_terminal_and_a_line_per_figure_elsewhere() -> None:
    live, plain = Tty(), io.StringIO()
    for stream in (live, plain):
        bench = Bench("W1", on_step=Progress(stream).step)
        bench.measure("start", unit="s", sample=lambda: 1.0, repetitions=3)
    assert "\n" not in live.getvalue()
    assert "W1 · start · repetition 2/3" in live.getvalue()
    assert plain.getvalue() == "W1 · start · 3 repetitions\n"


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_json_holds_every_sample_its_statistics_and_its_target(tmp_path: Path) -> None:
    run = make_run(make_result(make_comparison(Target("<=", 0.5)), notes=("read me",)))
    path = write_json(run, tmp_path / "deep" / "out")
    assert path.name == "20260730T120005Z-a1b2c3d4e5.json"
    kept = json.loads(path.read_text())
    assert (kept["schema_version"], kept["commit"], kept["is_dirty"]) == (2, "a1b2c3d4e5f60718", True)
    assert (kept["machine"]["cpu"], kept["versions"]) == ("Abacus 3", {"django": "5.2.19"})
    (row,) = kept["rows"]
    (figure,) = row["figures"]
    assert (row["status"], row["notes"], figure["is_met"]) == ("measured", ["read me"], False)
    assert figure["ours"]["samples"] == [2.0, 3.0, 8.0]
    assert figure["theirs"]["statistics"]["median"] == 4.0
    assert figure["ratio"]["samples"] == [0.5, 0.75, 2.0]
    assert (figure["target"]["bound"], figure["parameters"]) == (0.5, {"tokens": 4096})
    assert (path.parent / "latest.json").read_bytes() == path.read_bytes()


def test_a_run_that_was_kept_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = make_run(make_measured(), *results_of(make_registry()).values())
    assert read_run(write_json(run, tmp_path)) == run


@pytest.mark.parametrize("content", ["[]", "no JSON", '{"schema_version": 1}'])
def test_what_is_no_run_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "20260730T120005Z-a1b2c3d4e5.json"
    path.write_text(content)
    with pytest.raises(Unreadable, match="20260730T120005Z-a1b2c3d4e5"):
        read_run(path)
    assert newest_first(tmp_path) == []


def test_an_incomplete_run_is_kept_but_is_not_the_latest(tmp_path: Path) -> None:
    run = make_run(make_result(make_figure(1.0)))
    run.is_complete = False
    assert json.loads(write_json(run, tmp_path).read_text())["is_complete"] is False
    assert not (tmp_path / "latest.json").exists()


def test_a_comparison_is_plotted_as_two_sides_and_their_ratio() -> None:
    sides, ratio = panels(make_result(make_comparison(Target("<=", 0.5))))
    assert sides.title == "hash: ours 3 µs, vLLM 0.32 4 µs"
    assert (sides.axis, [series.name for series in sides.series]) == ("hash [µs]", ["ours", "vLLM 0.32"])
    assert ratio.title == "hash: ours ÷ theirs 0.750 ×   ✗ short by 50 % · target ≤ 0.5 ×"
    assert (ratio.axis, ratio.is_met) == ("hash, ours ÷ theirs per pair [×]", False)


@pytest.mark.parametrize(("bound", "is_drawn"), [(0.0, True), (2.0, True), (40.0, True), (150.0, False)])
def test_a_target_is_drawn_where_it_leaves_the_samples_room(bound: float, is_drawn: bool) -> None:
    target = Target("<=", bound)
    (panel,) = panels(make_result(make_figure(9.0, target=target)))
    assert is_in_reach(panel, target) is is_drawn


def test_a_row_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `bench`")
    figures = [make_comparison(Target("<=", 0.5)), make_figure(0.0, 0.0, target=Target("==", 0.0, of="max"))]
    figures += [Bench("X1").record("drift", unit="%", values=[-1.0, 2.0], target=Target("==", 0.0, tolerance=0.5))]
    run = make_run(make_result(*figures), make_result(key="X2"))
    names = write_plots(run, tmp_path)
    assert names == {"X1": "20260730T120005Z-a1b2c3d4e5-X1.png"}
    assert (tmp_path / names["X1"]).read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / names["X1"].replace(".png", ".svg")).getroot().tag.endswith("svg")


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    commit = machine.commit_of(tmp_path)
    assert (commit.revision, commit.is_dirty, commit.short) == (None, None, "nocommit")


def test_only_installed_packages_have_versions(tmp_path: Path) -> None:
    extras = '[project.optional-dependencies]\nx = ["pytest>=1,<99", "no-such-package[all]; python_version > \'3\'"]\n'
    (tmp_path / "pyproject.toml").write_text(extras)
    versions = machine.package_versions(tmp_path)
    assert versions["pytest"] == pytest.__version__
    assert "no-such-package" not in versions


def test_this_machine_has_cores_and_memory() -> None:
    found = machine.this_machine()
    assert min(found.cores, found.memory_gib) > 0
    assert all([found.cpu, found.os, found.kernel])


@pytest.mark.parametrize(
    "change", [{"busy_before_percent": 40.0}, {"busy_after_percent": 40.0}, {"stolen_percent": 9.0}]
)
def test_a_row_is_noisy_where_others_had_much_to_do(change: dict[str, float]) -> None:
    assert not QUIET.is_noisy
    assert not replace(QUIET, busy_before_percent=None, busy_after_percent=None, stolen_percent=None).is_noisy
    assert replace(QUIET, **change).is_noisy


def test_what_else_a_machine_does_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.noise.LOOK_SECONDS", 0.05)
    heard = Listening().ended()
    assert heard.load_before >= 0
    for percent in (heard.busy_before_percent, heard.busy_after_percent, heard.stolen_percent):
        assert percent is None or 0 <= percent <= 100
