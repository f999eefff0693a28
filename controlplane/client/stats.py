"""`luminet stats`: the numbers of a window, as a page for people, as JSON or CSV for programs."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from controlplane.client.calc_report import size
from controlplane.client.command import Session, rest_command
from controlplane.client.errors import ClientError
from controlplane.client.places import Place, place_read
from controlplane.client.shapes import shaped
from controlplane.client.tables import BOLD, DIM, YELLOW, Paper, cell, plain

WATCH_SECONDS: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
BARS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = "–"
STEPS: Final = {"1h": "2m", "24h": "30m", "7d": "4h", "30d": "15h"}  # step for the lines: as many points as fit
SPANS: Final = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
MAYBE: Final = (int, float, type(None))
NUMBERS: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")
COUNTS: Final = {**dict.fromkeys(NUMBERS, int), "hit_ratio": MAYBE}
STATS: Final = {
    **COUNTS,
    "window_seconds": int,
    "covered_seconds": int,
    "as_of": str,
    "before": {**COUNTS, "covered_seconds": int},
    "ttft_ms": dict.fromkeys(("p50", "p95", "p99", "hit_p50", "miss_p50"), MAYBE),
    "saved": {"tokens": int, "seconds": MAYBE, "money": (dict, type(None))},
    "missed_tokens_by_reason": dict,
    "resident_bytes": (int, type(None)),
    "by_model": [{**COUNTS, "model": str}],
}
TEXT: Final = (str, type(None))
KEY: Final = {**COUNTS, "id": TEXT, "name": TEXT, "prefix": TEXT, "is_revoked": bool}
MONEY: Final = {"currency": str, "rounded": str, "is_example": bool, "without_price": [str]}
SERIES: Final = {"step_seconds": int, "points": [{"requests": int, "hit_ratio": MAYBE}]}


@rest_command
@click.argument("place", required=False, help="acme or acme/chat; none: the fleet")
@click.option("--window", type=click.Choice(list(STEPS)), default="24h", help="how far back from now (24h)")
@click.option("--namespace", metavar="SLUG", help="the same as acme/SLUG")
@click.option("--model", help="only of this model")
@click.option("--csv", "as_csv", is_flag=True, help="for spreadsheets")
@click.option("--watch", is_flag=True, help="again every two seconds, until Ctrl-C")
def stats(
    session: Session,
    place: str | None,
    window: str,
    namespace: str | None,
    model: str | None,
    as_csv: bool,
    watch: bool,
) -> None:
    scope = _place(place, namespace)
    if as_csv and (session.as_json or watch):
        raise ClientError("--csv goes with neither --json nor --watch")
    while True:
        _show(session, scope, window, model, as_csv=as_csv, clears=watch and sys.stdout.isatty())
        if not watch:
            return
        session.rest.sleep(WATCH_SECONDS)


def _place(text: str | None, namespace: str | None) -> Place:
    scope = place_read(text)
    if namespace is None:
        return scope
    if not scope.organisation or scope.namespace:
        raise ClientError("--namespace goes with an organisation, as in: luminet stats acme --namespace chat")
    return Place(scope.organisation, namespace)


def _show(session: Session, scope: Place, window: str, model: str | None, *, as_csv: bool, clears: bool) -> None:
    rest, paper = session.rest, session.paper
    path = f"{Place(scope.organisation).path or '/fleet'}/stats"
    query = {"window": window, "namespace": scope.namespace or None, "model": model}
    if as_csv:
        paper.say(*rest.text(path, **query, format="csv").splitlines())
        return
    report = shaped(rest.get(path, **query).body, _shape(scope))
    if session.is_json(report):
        return
    series = shaped(rest.get(f"{path}/series", **query, step=STEPS[window]).body, SERIES)
    if clears:
        print(CLEAR, end="")
    _print(paper, scope, model, report, series)


def _shape(scope: Place) -> Mapping[str, Any]:
    by = _by(scope)
    return {**STATS, f"by_{by}": [{**COUNTS, by: (str, type(None)), "resident_bytes": (int, type(None))}]}


def _by(scope: Place) -> str:
    return "namespace" if scope.organisation else "organisation"


def _print(paper: Paper, scope: Place, model: str | None, report: Any, series: Any) -> None:
    head = f"{plain(scope.name)}{f' · {plain(model)}' if model else ''}"
    paper.say(f"{paper.paint(head, BOLD)} · {_covered(report)} · as of {cell(report['as_of'])}")
    for name, words in _headlines(report):
        paper.say(f"{paper.paint(f'{name:<14}', DIM)}{words}")
    for name, words in _lines(series):
        paper.say(f"{paper.paint(f'{name:<14}', DIM)}{words}")
    for words in _reserves(report["saved"]["money"]):
        paper.say(paper.paint(words, YELLOW))
    _reasons(paper, report["missed_tokens_by_reason"])
    for by in (_by(scope), "model"):
        _parts(paper, by, report[f"by_{by}"])
    keys = shaped(report.get("by_key", []), [KEY], "answer.by_key")  # an older control plane sends none
    _parts(paper, "key", [{**key, "key": _key_name(key)} for key in keys])


def _key_name(key: Mapping[str, Any]) -> str:
    if key["id"] is None:
        return NOTHING
    label = f"{key['name']} ({key['prefix']}…)" if key["name"] else str(key["id"])
    return f"{label}, revoked" if key["is_revoked"] else label


def _covered(report: Mapping[str, Any]) -> str:
    """Return the window's length and, if not all of it has data, how much has."""
    whole, covered = report["window_seconds"], report["covered_seconds"]
    window = _window(report)
    return window if covered >= whole else f"{span(covered)} of {window}"


def _window(report: Mapping[str, Any]) -> str:
    whole = report["window_seconds"]
    return "24 h" if whole == SPANS["d"] else span(whole)


def _headlines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    saved, ttft = report["saved"], report["ttft_ms"]
    rate, requests = those_before(report)
    yield "hit rate", f"{percent(report['hit_ratio'])} of prompt tokens{rate}"
    yield "requests", f"{report['requests']:,}{requests}"
    tokens = f"{report['prompt_tokens']:,} prompt, {report['cached_tokens']:,} of them cached"
    yield "tokens", f"{tokens}, {report['generated_tokens']:,} generated"
    yield "saved", ", ".join(_saved(saved))
    yield "first token", ", ".join(f"{name} {milliseconds(ttft[name])}" for name in ("p50", "p95", "p99"))
    yield "hit or miss", _compared(ttft)
    if report["resident_bytes"] is not None:
        yield "in the cache", size(max(report["resident_bytes"], 0))


def those_before(report: Mapping[str, Any]) -> tuple[str, str]:
    """Return the comparison with the window before, if that was counted completely."""
    before = report["before"]
    if before["covered_seconds"] < report["window_seconds"]:
        return f"; no whole {_window(report)} before to compare with", ""
    return f", {percent(before['hit_ratio'])} before", f", {before['requests']:,} before"


def _saved(saved: Mapping[str, Any]) -> Iterator[str]:
    yield f"{saved['tokens']:,} tokens"
    if saved["seconds"] is not None:
        yield f"{saved['seconds']:,.1f} s of waiting"
    if saved["money"] is not None:
        money = shaped(saved["money"], MONEY, "answer.saved.money")
        yield f"{cell(money['rounded'])} {cell(money['currency'])}"


def _reserves(amount: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the caveats of an amount."""
    if amount is None:
        return
    money = shaped(amount, MONEY, "answer.saved.money")
    if money["is_example"]:
        yield "At example prices: nobody asks them."
    if money["without_price"]:
        yield f"The money saved lacks what has no price: {', '.join(map(cell, money['without_price']))}."


def _compared(ttft: Mapping[str, Any]) -> str:
    if ttft["hit_p50"] is None or ttft["miss_p50"] is None:
        return "not enough misses of the same length to compare"
    return f"{milliseconds(ttft['hit_p50'])} against {milliseconds(ttft['miss_p50'])} for prompts as long"


def _lines(series: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    points, step = series["points"], span(series["step_seconds"])
    most = max([1, *(point["requests"] for point in points)])
    yield "hit rate", f"{bars([point['hit_ratio'] for point in points])}  each {step}, 0 to 100 %"
    shares = [point["requests"] / most if point["requests"] else None for point in points]
    yield "requests", f"{bars(shares)}  each {step}, up to {most:,}"


def _reasons(paper: Paper, missed: Mapping[str, Any]) -> None:
    counted = sorted(shaped(list(missed.items()), [object]), key=lambda pair: -shaped(pair[1], int, "answer.missed"))
    rows = [[reason, f"{tokens:,}"] for reason, tokens in counted if tokens]
    if rows:
        paper.say("")
        paper.numbers(["MISSED BECAUSE", "TOKENS"], rows)


def _parts(paper: Paper, by: str, parts: Sequence[Mapping[str, Any]]) -> None:
    cache_heads = [] if by in ("model", "key") else ["IN CACHE"]
    rows = [
        [
            cell(part[by]),
            percent(part["hit_ratio"]),
            f"{part['requests']:,}",
            f"{part['prompt_tokens']:,}",
            f"{part['cached_tokens']:,}",
            *([_bytes(part["resident_bytes"])] if cache_heads else []),
        ]
        for part in parts
    ]
    heads = [by.upper(), "HIT RATE", "REQUESTS", "PROMPT TOKENS", "CACHED", *cache_heads]
    if rows:
        paper.say("")
        paper.numbers(heads, rows)


def _bytes(number: int | None) -> str:
    return NOTHING if number is None else size(max(number, 0))


def bars(shares: Sequence[float | None]) -> str:
    """Return a bar for each share from 0 (lowest) to 1 (highest); a space if the share is unknown."""
    return "".join(" " if share is None or not math.isfinite(share) else _bar(share) for share in shares)


def _bar(share: float) -> str:
    return BARS[round(min(max(share, 0.0), 1.0) * (len(BARS) - 1))]


def percent(ratio: float | None) -> str:
    """Return the ratio rounded down, as the header of every answer is."""
    if ratio is None or not math.isfinite(ratio):
        return NOTHING
    return f"{math.floor(round(ratio * 1_000, 6)) / 10:.1f} %"


def milliseconds(number: float | None) -> str:
    if number is None:
        return NOTHING
    return f"{number / 1_000:.3g} s" if number >= 1_000 else f"{number:.3g} ms"


def span(seconds: int) -> str:
    """Return the time in the largest unit that fits, rounded down."""
    unit, unit_seconds = next(((name, size) for name, size in SPANS.items() if seconds >= size), ("s", 1))
    return f"{seconds // unit_seconds} {unit}"
