"""Which figures are drawn: where people rather look than read. A picture whose row has no figures is left out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine_agent.tools.report import format_number
from tests.bench.figures import Figure, Series
from tests.bench.report.numbers import BY_KEY
from tests.bench.report.svg import Bar, Chart
from tests.bench.results import RowResult
from tests.bench.words import with_unit

Rows = Mapping[str, RowResult]


@dataclass(frozen=True, slots=True)
class Picture:
    """`of`: the keys of the rows it shows, the first of which it stands beside."""

    name: str
    of: tuple[str, ...]
    draw: Callable[[Rows], Chart]


@dataclass(frozen=True, slots=True)
class Pick:
    """One line. `side` of a comparison (ours, theirs, ratio); `is_inverse`: 1/x, so that less is better everywhere."""

    key: str
    figure: str
    label: str
    side: str = ""
    series: int = 1
    is_inverse: bool = False


def charts(rows: Rows) -> dict[str, Chart]:
    """By name; those there are figures for."""
    found = {picture.name: picture.draw(rows) for picture in PICTURES}
    return {name: chart for name, chart in found.items() if chart.bars}


def _bars(rows: Rows, picks: Sequence[Pick]) -> list[Bar]:
    return [bar for pick in picks if (figure := _figure(rows, pick)) and (bar := _bar(figure, pick))]


def _figure(rows: Rows, pick: Pick) -> Figure | None:
    row = rows.get(pick.key)
    return next((one for one in row.figures if one.name == pick.figure), None) if row else None


def _bar(figure: Figure, pick: Pick) -> Bar | None:
    series: Series | None = getattr(figure, pick.side) if pick.side else figure.judged
    if series is None:
        return None
    is_judged = series is figure.judged and figure.target is not None and figure.target.of == "median"
    found = series.statistics
    points = [found.p5, found.p25, found.median, found.p75, found.p95]
    bound = figure.target.bound if figure.target and is_judged else None
    if pick.is_inverse:
        points, bound = [1 / point for point in reversed(points)], 1 / bound if bound else None
    low, lower, median, upper, high = points
    text = with_unit(format_number(median), "×" if pick.is_inverse else series.unit)
    label = f"{pick.key} {pick.label}"
    return Bar(label, low, lower, median, upper, high, text, pick.series, bound, figure.is_met if is_judged else None)


# --- how near to its target each row comes ----------------------------------------------------------------------------


def _targets(rows: Rows) -> Chart:
    """Of each row the figure that is nearest to its target, or furthest beyond."""
    bars = []
    for key, number in BY_KEY.items():
        row = rows.get(key)
        shares = [(share, one) for one in (row.figures if row else ()) if (share := _share(one)) is not None]
        if number.is_any:
            shares = sorted(shares, key=lambda found: found[0])[:1]
        if shares:
            bars.append(_nearest(key, shares))
    bars.sort(key=lambda bar: -bar.median)
    return Chart(
        "How much of its target each row takes: its figure that comes nearest, or furthest beyond",
        "share of the target that is used up, logarithmic; beyond 1 it falls short",
        bars,
        is_log=True,
    )


def _nearest(key: str, shares: Sequence[tuple[float, Figure]]) -> Bar:
    share, figure = max(shares, key=lambda found: found[0])
    name = figure.name if len(figure.name) <= 38 else f"{figure.name[:37]}…"
    return Bar(f"{key} {name}", share, share, share, share, share, f"{share:.2g}", 1, 1.0, figure.is_met)


def _share(figure: Figure) -> float | None:
    """None where the target is none to come near to: a count of zero, or a value that is to be met exactly."""
    target, value = figure.target, figure.judged_value
    if target is None or target.bound <= 0 or value <= 0:
        return None
    if target.comparison in ("<=", "<"):
        return value / target.bound
    return target.bound / value if target.comparison in (">=", ">") else None


# --- the others -------------------------------------------------------------------------------------------------------

BESIDE_OTHERS = (
    Pick("C1", "new prompt", "new prompt ÷ vLLM's"),
    Pick("C2", "full hit", "full hit ÷ vLLM's"),
    Pick("E2", "hit, 4,096 tokens", "first token of a hit ÷ vLLM's"),
    Pick("E3", "cold, 4,096 tokens", "cold first token ÷ vLLM's"),
    Pick("E3", "decoding, 8 at once", "decoding, vLLM's rate ÷ ours", is_inverse=True),
    Pick("V1", "a new prompt of 4,096 tokens", "new prompt in vLLM ÷ without us"),
    Pick("V1", "a full hit of 4,096 tokens", "full hit in vLLM ÷ without us"),
    Pick("V1", "a step of 32 answers", "step in vLLM ÷ without us"),
    Pick("V2", "requests served", "trace in vLLM, rate without us ÷ with", is_inverse=True),
    Pick("G1", "requests/s", "LiteLLM's requests/s ÷ ours", is_inverse=True),
    Pick("G3", "time for a request, all in all", "cache-aware ÷ round robin"),
)


def _beside(rows: Rows) -> Chart:
    bars = _bars(rows, BESIDE_OTHERS)
    title = "Beside others in the same run: time or cost, ours ÷ theirs"
    return Chart(
        title, "×, logarithmic; left of 1 we are quicker · bar p25–p75, line p5–p95, dashes the target", bars, True
    )


GATEWAY = (
    Pick("G1", "added latency, 1 client", "1 client"),
    Pick("G1", "added latency, 1 client, LiteLLM 1.108.7", "1 client, LiteLLM", series=2),
    Pick("G2", "added latency, many short messages", "chat of many messages, seen"),
    Pick("G2", "added latency, few long messages", "chat of few long ones, seen"),
    Pick("G2", "added latency, many short messages, cold", "chat of many messages, cold", series=3),
    Pick("G2", "added latency, few long messages, cold", "chat of few long ones, cold", series=3),
)


def _gateway(rows: Rows) -> Chart:
    return Chart("What a gateway adds to a request", "ms, logarithmic", _bars(rows, GATEWAY), is_log=True)


ROUTING = (
    Pick("G3", "time to first token p50, cache-aware", "first token, cache-aware"),
    Pick("G3", "time to first token p50, round robin", "first token, round robin", series=2),
    Pick("G3", "time for a request, all in all", "a request, cache-aware", side="ours"),
    Pick("G3", "time for a request, all in all", "a request, round robin", side="theirs", series=2),
)


def _routing(rows: Rows) -> Chart:
    return Chart("Requests that go where their prefix is", "ms", _bars(rows, ROUTING))


FLEET = (
    Pick("P1", "publish until all 100 have acknowledged", "publish, 100 agents"),
    Pick("P1", "publish until all 1,000 have acknowledged", "publish, 1,000 agents"),
    Pick("P2", "purge until every receipt is there", "purge, 50 agents"),
    Pick("P2", "bad policy published until it is taken back from every agent", "bad policy taken back"),
    Pick("P2", "agent killed until it is shown as stale", "stale agent shown"),
    Pick("A4", "headers left until a page shows it, one page", "headers → page", series=3),
    Pick("A4", "headers left until a page shows it, 500 pages", "headers → 500 pages", series=3),
    Pick("A4", "the same, the slowest of 500 pages", "headers → slowest of 500", series=3),
    Pick("W2", "first start (new data): first chat completion", "make up, new data", series=4),
    Pick("W2", "second start: first chat completion", "make up, second start", series=4),
)


def _fleet(rows: Rows) -> Chart:
    return Chart("How soon what somebody did is everywhere", "s, logarithmic", _bars(rows, FLEET), is_log=True)


FLOODS, CACHES = (1, 4, 16), (("half reserved", 3), ("weighted fair", 1), ("one cache", 2))


def _fairness(rows: Rows) -> Chart:
    picks = [
        Pick("C5", f"×{flood}, {name}", f"flooder ×{flood}, {name}", series=series)
        for flood in FLOODS
        for name, series in CACHES
    ]
    return Chart(
        "What a quiet tenant keeps beside a flooder", "% of its hit rate alone in half the pool", _bars(rows, picks)
    )


def _quality(rows: Rows) -> Chart:
    row = rows.get("Q1")
    bars = [_format_bar(one) for one in (row.figures if row else ()) if one.target and one.name.endswith(", plain")]
    return Chart(
        "Perplexity lost to each KV format, by byte of text, plain",
        "%, logarithmic; line the 95 % interval, dashes the bound",
        [bar for bar in bars if bar],
        is_log=True,
    )


def _format_bar(figure: Figure) -> Bar | None:
    low, high, median = figure.parameters.get("low"), figure.parameters.get("high"), figure.ours.statistics.median
    if figure.target is None or median <= 0 or not isinstance(low, float) or not isinstance(high, float):
        return None
    label = f"Q1 {figure.name.removeprefix('ΔPPL by byte of ').removesuffix(', plain')}"
    return Bar(
        label, low, median, median, median, high, f"{format_number(median)} %", 1, figure.target.bound, figure.is_met
    )


SLOWEST = 12


def _pages(rows: Rows) -> Chart:
    row = rows.get("W1")
    pages = [one for one in (row.figures if row else ()) if one.name.startswith("page, ")]
    pages.sort(key=lambda one: -one.judged_value)
    bars = []
    for figure in pages[:SLOWEST]:
        found, bound = figure.ours.statistics, figure.target.bound if figure.target else None
        label = figure.name.removeprefix("page, ")
        text = f"{format_number(found.p95)} ms"
        bars.append(Bar(label, found.p5, found.p25, found.median, found.p75, found.p95, text, 1, bound, figure.is_met))
    return Chart(f"The {SLOWEST} slowest pages of {len(pages)}, by the server's p95", "ms; line p5–p95", bars)


PICTURES = (
    Picture("targets", (), _targets),
    Picture("beside-others", (), _beside),
    Picture("pages", ("W1",), _pages),
    Picture("fleet", ("P1", "P2", "A4", "W2"), _fleet),
    Picture("gateway", ("G1", "G2"), _gateway),
    Picture("routing", ("G3",), _routing),
    Picture("fairness", ("C5",), _fairness),
    Picture("quality", ("Q1",), _quality),
)


def beside(key: str, drawn: Mapping[str, Chart]) -> Iterator[tuple[str, str]]:
    """Name and title of the pictures that stand beside this row."""
    for picture in PICTURES:
        if picture.of[:1] == (key,) and picture.name in drawn:
            yield picture.name, drawn[picture.name].title
