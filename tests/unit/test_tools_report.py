"""What all tools tell with: numbers, tables, progress, files and pictures."""

import io
import json
import sys
from pathlib import Path

import pytest

from engine_agent.tools import report
from engine_agent.tools.errors import ToolError
from engine_agent.tools.plots import new_figure, plotting_checked, write_figures
from engine_agent.tools.report import (
    RED,
    Progress,
    aligned,
    format_amount,
    format_duration,
    format_number,
    format_percent,
    painted,
    print_or_write,
    wants_colour,
    write_atomically,
)
from tests.unit.test_client_terminal import Tty


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.0, "2"),
        (12031.0, "12,031"),
        (1234.5, "1,234"),
        (1.4, "1.40"),
        (0.01234, "0.0123"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_amounts_have_three_digits_and_a_unit() -> None:
    tokens = (0, 1, 999, 1000, 9_994, 9_995, 99_940, 99_950, 999_499, 999_500, 10_900_000, 2.5e12)
    assert [format_amount(one) for one in tokens] == [
        *("0", "1", "999", "1.00 k", "9.99 k", "10.0 k", "99.9 k", "100 k", "999 k", "1.00 M", "10.9 M", "2500 G"),
    ]
    assert [format_percent(one) for one in (None, 0.0, 0.29295, 1.0)] == ["–", "0.0 %", "29.3 %", "100.0 %"]
    assert [format_duration(one) for one in (0.4, 99, 101, 3537, 36_000, 37_000)] == [
        *("0 s", "99 s", "2 min", "59 min", "10 h 0 min", "10 h 17 min"),
    ]


def test_errors_name_what_is_known() -> None:
    assert str(ToolError(Path("a.json"), "digest", "is wrong")) == "a.json: digest: is wrong"
    assert str(ToolError(Path("a.json"), "", "is no JSON")) == "a.json: is no JSON"


def test_columns_are_aligned_by_what_is_seen() -> None:
    rows = [("name", "n", "verdict"), ("a", "1,000", painted("failed", RED)), ("longer", "7", "ok")]
    assert aligned(rows, left=(0, 2)) == [
        "name        n  verdict",
        f"a       1,000  {RED}failed\x1b[0m",
        "longer      7  ok",
    ]


def test_colour_is_for_terminals_that_did_not_decline_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Tty())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Tty())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Tty())


def test_a_terminal_shows_progress_and_is_clean_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REDRAW_SECONDS", 0)
    stream = Tty()
    with Progress(stream) as progress:
        progress.show("sliding 300 s (1 of 2)", 0, 200)
        assert stream.getvalue().endswith("sliding 300 s (1 of 2) · 0 %")
        progress.show("sliding 300 s (1 of 2)", 50, 200)
        assert "sliding 300 s (1 of 2) · 25 % · " in stream.getvalue()
        assert stream.getvalue().endswith(" s left")
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_where_nobody_watches_no_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REDRAW_SECONDS", 0)
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.show("x", 50, 200)
    assert stream.getvalue() == ""


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "latest.json"
    write_atomically(path, b"old")

    def full(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("engine_agent.tools.report.os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("latest.json", b"old")]


def test_people_get_text_and_programs_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, file = {"tokens": 1}, tmp_path / "run.json"
    print_or_write("a table", document, None)
    assert capsys.readouterr() == ("a table\n", "")
    print_or_write("a table", document, file)
    assert capsys.readouterr() == ("a table\n", f"wrote {file}\n")
    assert file.read_text() == '{\n  "tokens": 1\n}\n'
    print_or_write("a table", document, Path("-"))
    out, err = capsys.readouterr()
    assert (json.loads(out), out.count("\n"), err) == (document, 1, "")


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolError, match=r"pip install .*\[bench\]"):
        plotting_checked()
    with pytest.raises(ToolError, match=r"pip install .*\[bench\]"):
        write_figures(tmp_path, {"x": lambda: new_figure(2, 2)})


def test_plots_leave_no_window_system_behind(tmp_path: Path) -> None:
    written = write_figures(tmp_path, {"empty": lambda: new_figure(2, 2)})
    assert [path.name for path in written] == ["empty.svg", "empty.png"]
    assert "matplotlib.pyplot" not in sys.modules
