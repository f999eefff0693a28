"""Figures of every page there is, for row W1: with a thousand organisations and two days of traffic stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from tests.bench.figures import Target
from tests.bench.measuring import Bench
from tests.bench.page_weights import Weights
from tests.bench.pages import NotAnswered, Pages
from tests.bench.stacks import Stack, call_inside
from tests.bench.stats import statistics_of

TURNS, LOADS = 20, 5
IN_TIME, LIGHT = Target("<=", 150, of="p95"), Target("<=", 150, of="max")
Found = Mapping[str, Any]


@dataclass(slots=True)
class Wire:
    """Of pages by name: milliseconds until the last byte of the document, and kilobytes until the first paint."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    kilobytes: dict[str, float] = field(default_factory=dict)


def pages_measure(bench: Bench, stack: Stack, filled: Found) -> None:
    """`filled`: what tests/bench/lived_in.py has stored."""
    sound = "yes" if filled["is_sound"] else "NO"
    bench.note(f"{filled['rows']:,} rows of minutes stored in {filled['seconds']:.0f} s; audit trail sound: {sound}")
    listed = call_inside(stack, "tests.bench.page_asking:every_page", filled["named"])
    costs = call_inside(stack, "tests.bench.page_asking:measure", filled["named"], bench.repetitions(TURNS))
    wire = _wire(bench, stack, listed)
    for name, found in costs.items():
        _record(bench, name, found, wire)
    slow = {name: statistics_of([one["wall"] for one in found]).p95 for name, found in costs.items()}
    loads = {name: statistics_of(found).p95 for name, found in wire.milliseconds.items()}
    _record_worst(bench, "pages over the wire, p95 of each", "ms", loads)
    _record_worst(bench, "first paint of each page", "KB", wire.kilobytes)
    bench.note(f"server time: {_worst_words(slow, 'ms')}")
    bench.note(f"over the wire: {_worst_words(loads, 'ms')}")
    bench.note(f"first paint: {_worst_words(wire.kilobytes, 'KB')}")
    refused = {name: found[-1]["status"] for name, found in costs.items() if found[-1]["status"] != 200}
    if refused:
        bench.note(f"answered otherwise than by 200: {', '.join(f'{one} {code}' for one, code in refused.items())}")


def _record(bench: Bench, name: str, costs: Sequence[Found], wire: Wire) -> None:
    """Wall time is judged; beside it stands what does not depend on who else is at work on the machine."""
    kilobytes = wire.kilobytes.get(name)
    weight = {} if kilobytes is None else {"first paint, KB": round(kilobytes, 1)}
    bench.record(
        f"page, {name}",
        unit="ms",
        values=[one["wall"] for one in costs],
        target=IN_TIME,
        parameters={
            "CPU, ms": round(statistics_of([one["cpu"] for one in costs]).median, 1),
            "queries": max(one["queries"] for one in costs),
            **weight,
        },
    )


def _record_worst(bench: Bench, name: str, unit: str, values: Mapping[str, float]) -> None:
    bench.record(name, unit=unit, values=list(values.values()), target=LIGHT, parameters={"pages": len(values)})


def _worst_words(values: Mapping[str, float], unit: str) -> str:
    worst = max(values, key=lambda name: values[name])
    beyond = [f"{name} {value:.0f}" for name, value in values.items() if not LIGHT.is_met(value)]
    words = (
        f"beyond {LIGHT.bound:.0f} {unit}: {', '.join(beyond)}" if beyond else f"none beyond {LIGHT.bound:.0f} {unit}"
    )
    return f"{worst} is worst, {values[worst]:.0f} {unit}; {words}"


def _wire(bench: Bench, stack: Stack, listed: Found) -> Wire:
    wire = Wire()
    for number, one in enumerate(listed["pages"], 1):
        bench.step("pages over the wire", number, len(listed["pages"]))
        if not one["is_draft"]:
            _load(stack, listed["cookies"].get(one["who"]), one, wire)
    return wire


def _load(stack: Stack, cookies: Mapping[str, str] | None, one: Found, wire: Wire) -> None:
    """What is answered otherwise than by 200 is no page: a note names it."""
    with Pages(stack.address, cookies) as pages:
        try:
            pages.fetch(one["path"])
        except NotAnswered:
            return
        found = wire.milliseconds.setdefault(one["name"], [])
        for _ in range(LOADS):
            began = perf_counter()
            pages.fetch(one["path"])
            found.append((perf_counter() - began) * 1e3)
        if one["is_document"]:
            wire.kilobytes[one["name"]] = Weights(pages).of(one["path"]) / 1e3
