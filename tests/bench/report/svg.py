"""One kind of chart, as an SVG of a few kilobytes: a line for each figure with its median, its spread and its target.

Text stays text, both themes of a browser are served, and the same figures make the same bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 780, 290, 118
TOP, BOTTOM, LINE = 46, 40, 24
MOST_TICKS = 6
STYLE = """\
svg { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif }
.card { fill: #ffffff; stroke: #d5dae1 } .text { fill: #16202c } .muted { fill: #556172 } .grid { stroke: #e3e7ec }
.title { font-size: 14px; font-weight: 600 } .s1 { --c: #0d78f2 } .s2 { --c: #8b3b18 } .s3 { --c: #1da585 }
.s4 { --c: #7e257e }
.spread { stroke: var(--c); stroke-width: 2; opacity: .55 } .middle { fill: var(--c); opacity: .35 }
.median { stroke: var(--c); stroke-width: 3 }
.met { stroke: #1b7a43; fill: #1b7a43 } .short { stroke: #b3261e; fill: #b3261e }
.target { stroke-width: 2; stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
.card { fill: #161e28; stroke: #2c3744 } .text { fill: #e7ecf2 } .muted { fill: #9eabba } .grid { stroke: #2c3744 }
.s1 { --c: #1f7ff0 } .s2 { --c: #cf6330 } .s3 { --c: #3adab0 } .s4 { --c: #a8498c }
.met { stroke: #5fcf8d; fill: #5fcf8d } .short { stroke: #ff8a80; fill: #ff8a80 } }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure: what it is called, five points of its spread, and how its median reads. `series` chooses the colour."""

    label: str
    low: float
    lower: float
    median: float
    upper: float
    high: float
    text: str
    series: int = 1
    target: float | None = None
    is_met: bool | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """`axis` says unit and direction. Logarithmic where figures lie far apart; otherwise from zero."""

    title: str
    axis: str
    bars: Sequence[Bar]
    is_log: bool = False


class Scale:
    def __init__(self, chart: Chart) -> None:
        values = [one for bar in chart.bars for one in (bar.low, bar.high, bar.median, bar.target) if one is not None]
        self._is_log = chart.is_log
        if self._is_log:
            positive = [value for value in values if value > 0]
            self._low = 10.0 ** math.floor(math.log10(min(positive)))
            self._high = max(10 * self._low, 10.0 ** math.ceil(math.log10(max(positive))))
        else:
            self._low, self._high = min(0.0, *values), (max(values) or 1.0) * 1.02

    def x(self, value: float) -> float:
        room = WIDTH - LEFT - RIGHT
        if self._is_log:
            value = max(value, self._low)
            share = math.log(value / self._low) / math.log(self._high / self._low)
        else:
            share = (value - self._low) / (self._high - self._low)
        return round(LEFT + room * share, 1)

    def ticks(self) -> list[float]:
        if self._is_log:
            first, last = round(math.log10(self._low)), round(math.log10(self._high))
            every = max(1, math.ceil((last - first) / MOST_TICKS))
            return [10.0**power for power in range(first, last + 1, every)]
        step = _round_step((self._high - self._low) / MOST_TICKS)
        first, last = math.ceil(self._low / step - 1e-9), math.floor(self._high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= least * (1 - 1e-9))


def svg(chart: Chart) -> str:
    scale, height = Scale(chart), TOP + LINE * len(chart.bars) + BOTTOM
    body = [
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        _text(16, 26, chart.title, "text title"),
        *_grid(chart, scale, height),
        *(line for place, bar in enumerate(chart.bars) for line in _bar(bar, scale, TOP + LINE * place + LINE // 2)),
    ]
    told = "; ".join(f"{bar.label} {bar.text}" for bar in chart.bars)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
    lines = [head, f"<title>{escape(chart.title)}</title>", f"<desc>{escape(told)}</desc>", f"<style>\n{STYLE}</style>"]
    return "\n".join([*lines, *body, "</svg>"]) + "\n"


def _grid(chart: Chart, scale: Scale, height: int) -> list[str]:
    bottom = height - BOTTOM
    lines = []
    for tick in scale.ticks():
        x = scale.x(tick)
        lines.append(f'<path class="grid" d="M{x} {TOP}V{bottom}"/>')
        lines.append(_text(x, bottom + 15, f"{tick:,.6g}", "muted", "middle"))
    return [*lines, _text(16, bottom + 31, chart.axis, "muted")]


def _bar(bar: Bar, scale: Scale, y: int) -> list[str]:
    low, lower, median, upper, high = (scale.x(one) for one in (bar.low, bar.lower, bar.median, bar.upper, bar.high))
    verdict = "" if bar.is_met is None else " met" if bar.is_met else " short"
    lines = [
        _text(LEFT - 12, y + 4, bar.label, "text", "end"),
        f'<g class="s{bar.series}"><path class="spread" d="M{low} {y}H{high}"/>',
        f'<rect class="middle" x="{lower}" y="{y - 6}" width="{round(max(upper - lower, 1), 1)}" height="12"/>',
        f'<path class="median" d="M{median} {y - 7}V{y + 7}"/></g>',
        _text(WIDTH - RIGHT + 12, y + 4, bar.text, "text"),
    ]
    if bar.target is not None:
        lines.append(f'<path class="target{verdict}" d="M{scale.x(bar.target)} {y - 11}V{y + 11}"/>')
    return lines


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
