"""W1: how fast the web process starts, what it takes, and how quick, light and accessible its pages are.

Pages are asked with a thousand organisations stored; the process is started and weighed without them.
"""

from collections.abc import Mapping
from itertools import product

from playwright.sync_api import Browser

from tests.bench import Bench, Target, row
from tests.bench.browser import Scheme, axe_violations, chromium_running, first_load, visitor
from tests.bench.page_figures import pages_measure
from tests.bench.pages import Pages
from tests.bench.stacks import Memory, Stack, call_inside, fresh_home, stack_running, web_running
from tests.e2e.chromium import ChromiumUnavailable

OVERVIEW, SIGN_IN, PASSWORD = "/", "/sign-in", "/account/password"
NAMES = {OVERVIEW: "overview", SIGN_IN: "sign-in", PASSWORD: "password"}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
STARTS = 10
WARM_UP_LOADS = 50
FIRST_LOADS = 5


@row(
    "W1",
    title="Web process: start, memory, pages",
    target="≤ 2 s · ≤ 150 MB; p95 ≤ 150 ms · ≤ 150 KB · no accessibility violation (axe)",
)
def web_process(bench: Bench) -> None:
    with fresh_home() as config, stack_running(config) as stack:
        _start_and_memory(bench, stack)
        pages_measure(bench, stack, call_inside(stack, "tests.bench.lived_in:fill"))
        try:
            _browser(bench, stack)
        except ChromiumUnavailable as reason:
            bench.note(f"bytes over the wire and accessibility were not measured: {reason}")


def _start_and_memory(bench: Bench, stack: Stack) -> None:
    found: list[Memory] = []

    def start() -> float:
        with web_running(stack) as web:
            with Pages(web.address) as pages:
                pages.sign_in(*stack.operator)
                for _ in range(WARM_UP_LOADS):
                    pages.load(OVERVIEW)
            found.append(web.memory)
            return web.start_seconds

    figure = bench.measure("start until /healthz", unit="s", sample=start, repetitions=STARTS, target=Target("<=", 2))
    kept = found[-len(figure.ours.samples) :]
    bench.record(
        "memory after warm-up",
        unit="MB",
        values=[memory.rss if memory.pss is None else memory.pss for memory in kept],
        target=Target("<=", 150),
        parameters={
            "kind": "RSS" if kept[0].pss is None else "PSS",
            "RSS at most, MB": round(max(memory.rss for memory in kept), 1),
            "page loads before": WARM_UP_LOADS,
        },
    )


def _browser(bench: Bench, stack: Stack) -> None:
    with Pages(stack.address) as pages:
        pages.sign_in(*stack.operator)
    with chromium_running() as browser:
        _first_load(bench, stack, browser, pages.cookies)
        _accessibility(bench, stack, browser, pages.cookies)


def _first_load(bench: Bench, stack: Stack, browser: Browser, cookies: Mapping[str, str]) -> None:
    loads = []
    for _ in range(bench.repetitions(FIRST_LOADS)):
        with visitor(browser, stack.address, cookies) as context:
            loads.append(first_load(context, stack.address + OVERVIEW))
    bench.record(
        "first load, overview, over the wire",
        unit="KB",
        values=[load.wire_bytes / 1e3 for load in loads],
        target=Target("<=", 150),
        parameters={"cache": "empty", "Chromium": browser.version},
    )
    bench.record("first load, overview, requests", unit="", values=[load.requests for load in loads])


def _accessibility(bench: Bench, stack: Stack, browser: Browser, cookies: Mapping[str, str]) -> None:
    counts = []
    for scheme, (path, name) in product(SCHEMES, NAMES.items()):
        with visitor(browser, stack.address, {} if path == SIGN_IN else cookies, scheme=scheme) as context:
            violations = axe_violations(context, stack.address + path)
        counts.append(len(violations))
        if violations:
            bench.note(f"axe, {name}, {scheme}: {', '.join(violations)}")
    bench.record(
        "accessibility violations per page",
        unit="rules",
        values=counts,
        target=Target("==", 0, of="max"),
        parameters={"pages": ", ".join(NAMES.values()), "schemes": ", ".join(SCHEMES)},
    )
