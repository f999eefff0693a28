"""From prompts that come by to a report, with the process that looks at them."""

import asyncio
from array import array
from collections.abc import Sequence

import pytest

from engine_agent.contracts.wire import Report
from engine_agent.divergence.analysing import Sample
from engine_agent.divergence.child import samples_decode, samples_encode, told_of
from engine_agent.gateway.diverging import diverging, sampling
from engine_agent.gateway.diverging.diverging import Diverging, looked
from engine_agent.gateway.tables import Formats, Namespace, Rules

NAMESPACE = Namespace("7", "chat", 1, Rules(Formats(), {}), key=bytes(range(32)), epoch=1)
HEAD, TAIL = range(37), range(1_000, 1_400)


def prompt(number: int) -> "array[int]":
    return array("I", [*HEAD, *range(10_000 * number, 10_000 * number + 6), *TAIL])


def test_samples_are_read_as_they_were_written() -> None:
    samples = [Sample(b"", is_whole=True), Sample(bytes(range(8)), is_whole=False)]
    assert samples_decode(samples_encode(samples)) == samples


async def test_a_process_of_its_own_finds_what_is_found_here() -> None:
    samples = [Sample(bytes([number]) * 4 + bytes(range(256)) * 2) for number in range(9)]
    told = dict(await looked(samples))
    told["findings"], told["partings"] = tuple(told["findings"]), tuple(told["partings"])
    for one in told["findings"]:
        one["spans"] = tuple(one["spans"])
    assert told == told_of(samples)
    assert told["findings"]


async def test_what_varies_in_a_namespace_is_told_and_no_token_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (diverging, "LOOK_SECONDS", 0.01),
        (diverging, "TELL_SECONDS", 0.01),
        (sampling, "LOOK_SECONDS", 0.0),
        (sampling, "FIRST_LOOK_SECONDS", 0.0),
    ):
        monkeypatch.setattr(module, name, value)
    told = asyncio.Queue[Report]()

    async def tell(reports: Sequence[Report]) -> None:
        for one in reports:
            told.put_nowait(one)

    beside = Diverging(now=lambda: 1000.0, tell=tell, may_tell=lambda: True)
    for number in range(1, 11):
        beside.take(NAMESPACE, prompt(number), True)
    running = asyncio.create_task(beside.run())
    try:
        report = await asyncio.wait_for(told.get(), 60)
    finally:
        running.cancel()
    (one,) = report.told["namespaces"]["7"]["findings"]
    assert report.kind == "diagnostics"
    assert (one["token"], one["length_tokens"], one["share"]) == (37, 6, 0.9)


async def test_a_namespace_without_a_number_or_key_is_not_looked_at() -> None:
    """The isolation canary's, say."""

    async def tell(reports: Sequence[Report]) -> None:
        raise AssertionError

    beside = Diverging(now=lambda: 1000.0, tell=tell, may_tell=lambda: True)
    strange = Namespace("canary-a", "canary", 1, Rules(Formats(), {}), key=bytes(32), epoch=1)
    beside.take(strange, prompt(1), True)
    assert beside._making == set()
