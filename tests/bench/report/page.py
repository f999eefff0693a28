"""docs/performance.md, of a run and of the words that go with it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine_agent.tools.report import format_duration
from tests.bench.figures import Figure
from tests.bench.report.filling import Filling
from tests.bench.report.notes import RowWords, Section
from tests.bench.report.numbers import BESIDES, BY_KEY, NUMBERS, Number
from tests.bench.report.pictures import beside, charts
from tests.bench.report.standing import figures_text, is_shortened, short_figures, standing
from tests.bench.report.svg import Chart
from tests.bench.report.tables import tables
from tests.bench.results import RowResult, Run
from tests.bench.words import verdict

FOLDER = "performance"  # of the pictures, beside the page
SHOWN_VERSIONS = ("django", "torch", "transformers", "psycopg", "aiohttp", "uvicorn", "celery", "numpy")
HEAD = """\
# Performance

Every figure on this page, and every picture, is written by `make performance` from `docs/performance/run.json`, which
is what `make bench` measured; the words are in `docs/performance/notes/`. Ratios travel between machines, absolute
times do not. A figure that falls short stands here with its reason: benches report, they do not gate.
"""
REPEAT = """\
## To repeat

```sh
make bench              # all rows, each in a process of its own{duration}
make bench ROWS="C1 G1" # some
make bench RESUME=1     # goes on with a run of this commit that was interrupted
make performance        # keeps the newest run in docs/performance/run.json and writes this page
```

On a machine that does nothing else: the run looks for two seconds before and after each row at what others do, and
says which rows were noisy. It installs what is measured beside us once: LiteLLM (`.venv-litellm`, 780 MB) and vLLM
(`.venv-vllm`, 2.5 GB). Every sample is in `.luminet/bench/`, as JSON, with a table and plots.
Quantiles interpolate between closest ranks; a comparison alternates its sides and judges the ratios of pairs.
"""
NO_REASON = "No reason is written down yet."


@dataclass(frozen=True, slots=True)
class Report:
    run: Run
    sections: Sequence[Section]

    @property
    def rows(self) -> dict[str, RowResult]:
        return {row.key: row for row in self.run.results}

    def page(self) -> str:
        drawn = charts(self.rows)
        parts = [
            HEAD,
            *_measured(self.run),
            *_glance(self.rows, self.sections, drawn),
            *(line for section in self.sections for line in _section(self, section, drawn)),
            REPEAT.format(duration=_duration(self.run)),
        ]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"

    def missing_reasons(self) -> list[str]:
        """Figures that fall short and nobody says why; of a full run, for a shortened one proves nothing."""
        words = {key: found for section in self.sections for key, found in section.rows.items()}
        return [
            f"{key}: {figure.name}"
            for key, row in self.rows.items()
            if not is_shortened(row)
            for figure in short_figures(BY_KEY[key], row)
            if key not in words or not words[key].why_short(figure.name)
        ]


def _duration(run: Run) -> str:
    return f"; this one took {format_duration(sum(row.seconds for row in run.results))}"


# --- how it was measured ----------------------------------------------------------------------------------------------


def _measured(run: Run) -> list[str]:
    machine = run.machine
    hardware = f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.gpu or 'no GPU'}"
    versions = ", ".join(f"{name} {run.versions[name]}" for name in SHOWN_VERSIONS if name in run.versions)
    return [
        "## How it was measured",
        "",
        f"{hardware}; {machine.os}, Python {machine.python}; {versions}. Client, servers and what is measured beside "
        "them share the machine.",
        "",
        *_runs(run),
    ]


def _runs(run: Run) -> Iterator[str]:
    by_run: dict[str, list[RowResult]] = {}
    for row in run.results:
        if row.circumstances:
            by_run.setdefault(row.circumstances.run, []).append(row)
    if len(by_run) > 1:
        yield f"**These rows are not from one run, but from {len(by_run)}:**"
    else:
        yield "All rows are from one run:"
    yield from ("", "| begun (UTC) | commit | repetitions | rows | time | noisy |", "|---|---|---|---|---:|---|")
    for rows in sorted(by_run.values(), key=lambda found: str(found[0].circumstances and found[0].circumstances.run)):
        yield _run_line(rows)
    yield ""
    if any(is_shortened(row) for row in run.results):
        yield (
            "**Rows with fewer repetitions than their own were measured to see that everything works, not for their "
            "figures: what they say of a target proves nothing.**"
        )
    yield ""


def _run_line(rows: Sequence[RowResult]) -> str:
    first = min((row.circumstances for row in rows if row.circumstances), key=lambda found: found.started)
    dirty = " + changes" if first.commit.is_dirty else ""
    repetitions = "each figure's own" if first.repetitions is None else f"{first.repetitions} (shortened)"
    noisy = [row for row in rows if row.circumstances and row.circumstances.noise and row.circumstances.noise.is_noisy]
    is_heard = all(row.circumstances and row.circumstances.noise for row in rows)
    heard = (
        "not listened"
        if not is_heard
        else "none"
        if not noisy
        else "all"
        if len(noisy) == len(rows)
        else " ".join(row.key for row in noisy)
    )
    keys = " ".join(row.key for row in rows)
    seconds = format_duration(sum(row.seconds for row in rows))
    commit = f"{first.commit.short}{dirty}"
    return f"| {first.started:%Y-%m-%d %H:%M} | {commit} | {repetitions} | {keys} | {seconds} | {heard} |"


# --- at a glance ------------------------------------------------------------------------------------------------------


def _glance(rows: Mapping[str, RowResult], sections: Sequence[Section], drawn: Mapping[str, Chart]) -> list[str]:
    places = {key: anchor(section.heading) for section in sections for key in section.keys}
    lines = ["## At a glance", ""]
    for numbers, after in ((NUMBERS, "Measured besides, with bounds of our own:"), (BESIDES, "")):
        lines += ["| row | what | figure | reach | after that | |", "|---|---|---|---|---|---|"]
        lines += [_glance_line(number, rows.get(number.key), places) for number in numbers]
        lines += ["", after, ""]
    for name in ("targets", "beside-others"):
        lines += _picture(name, drawn[name].title) if name in drawn else []
    return lines


def _glance_line(number: Number, row: RowResult | None, places: Mapping[str, str]) -> str:
    key = f"[{number.key}](#{places[number.key]})" if number.key in places else number.key
    how = standing(number, row).text.replace("|", "/")
    return f"| {key} | {number.what} | {figures_text(number, row)} | {number.reach} | {number.after} | {how} |"


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _picture(name: str, title: str) -> list[str]:
    return [f"![{title}]({FOLDER}/{name}.svg)", ""]


# --- sections ---------------------------------------------------------------------------------------------------------


def _section(report: Report, section: Section, drawn: Mapping[str, Chart]) -> Iterator[str]:
    filling = Filling(report.rows)
    yield from (f"## {section.heading}", "", filling.filled(section.words), "")
    for key in section.keys:
        yield from _row(key, report.rows.get(key), section.rows[key], filling)
        for name, title in beside(key, drawn):
            yield from _picture(name, title)
    measured = [key for key in section.keys if key in report.rows]
    if measured:
        yield from (f'To repeat: `make bench ROWS="{" ".join(measured)}"`.', "")


def _row(key: str, row: RowResult | None, words: RowWords, filling: Filling) -> Iterator[str]:
    number = BY_KEY[key]
    yield from (f"### {key} · {row.title if row else number.what}", "")
    if row is None:
        yield from (f"Not measured: {number.gpu or 'no run has this row yet'}.", "")
    else:
        yield from _figures(number, row)
        yield from _why(row, short_figures(number, row), words, filling)
    yield from (filling.filled(words.words, key), "")


def _figures(number: Number, row: RowResult) -> Iterator[str]:
    beside_whom = f"Beside {row.beside}. " if row.beside else ""
    yield from (f"{beside_whom}{_when(row)}", "")
    if row.error:
        yield from (f"**Failed:** {row.error.message}", "")
    if row.skipped is not None:
        yield from (f"**Not measured further:** {row.skipped}", "")
    yield from tables(row)
    yield from (f"- {note}" for note in row.notes)
    yield ""


def _when(row: RowResult) -> str:
    now = row.circumstances
    if now is None:
        return ""
    took = f"Took {format_duration(row.seconds)}"
    if now.noise is None:
        return f"{took}."
    heard = now.noise
    busy = "?" if heard.busy_before_percent is None else f"{heard.busy_before_percent:.0f} %"
    if not heard.is_noisy:
        return f"{took}, others took {busy} of the cores before."
    after = "?" if heard.busy_after_percent is None else f"{heard.busy_after_percent:.0f} %"
    stolen = f", {heard.stolen_percent:.0f} % stolen" if heard.stolen_percent else ""
    return f"{took}; **noisy**: others took {busy} of the cores before, {after} after{stolen}."


def _why(row: RowResult, short: Sequence[Figure], words: RowWords, filling: Filling) -> Iterator[str]:
    """Each reason once, for all figures it is of."""
    if short and is_shortened(row):
        yield from ("Short, with too few repetitions to say so of the row.", "")
        return
    by_reason: dict[str, list[Figure]] = {}
    for figure in short:
        reason = words.why_short(figure.name)
        by_reason.setdefault(reason.words if reason else NO_REASON, []).append(figure)
    for reason_words, figures in by_reason.items():
        names = "; ".join(f"{one.name}, {verdict(one).removeprefix('✗ ')}" for one in figures)
        yield from (f"**Why {names}:** {filling.filled(reason_words, row.key)}", "")
