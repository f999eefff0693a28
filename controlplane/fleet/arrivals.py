"""Decide which of an agent's spooled reports are new. Pure.

A spool numbers its reports from 1 and sends a report again until it is acknowledged; the number ensures that each is
processed once. Skipped numbers are counted as lost reports. An agent with a new state directory has a new spool; late
or duplicated reports of its earlier spools are recognised by those spools' own numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_agent.contracts.protocol import MalformedMessage
from engine_agent.contracts.wire import Batch, Report

MOST = 2**63 - 1  # the largest value of the database column
PAST_SPOOLS = 8


@dataclass(frozen=True, slots=True)
class Received:
    """The reports received so far: all up to `number` of `spool`, likewise for the `past` spools, newest first."""

    spool: str = ""
    number: int = 0
    past: tuple[tuple[str, int], ...] = ()
    lost: int = 0

    def number_of(self, spool: str) -> int:
        return self.number if spool == self.spool else dict(self.past).get(spool, 0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The new reports of a batch (`fresh`), and the state after they are stored (`received`).

    Nothing is acknowledged before they are stored.
    """

    received: Received
    acknowledged: int
    fresh: Sequence[Report]
    seen: int
    lost: int


def numbers_check(batch: Batch) -> None:
    """Raise MalformedMessage for report numbers too large to store; no real spool reaches them."""
    if batch.first + len(batch.reports) > MOST:
        raise MalformedMessage("first", f"must leave room for {len(batch.reports)} reports below 2⁶³")


def arrival_of(received: Received, batch: Batch) -> Arrival:
    known, last = received.number_of(batch.spool), batch.first + len(batch.reports) - 1
    seen = min(max(known - batch.first + 1, 0), len(batch.reports))
    fresh = batch.reports[seen:]
    if not fresh:
        return Arrival(received, known, (), seen, 0)
    lost = max(batch.first - known - 1, 0)
    return Arrival(_advanced(received, batch.spool, last, lost), last, fresh, seen, lost)


def _advanced(received: Received, spool: str, number: int, lost: int) -> Received:
    lost = min(received.lost + lost, MOST)
    if spool == received.spool:
        return Received(spool, number, received.past, lost)
    earlier_spools = ((received.spool, received.number), *received.past) if received.spool else ()
    past_spools = tuple(past_spool for past_spool in earlier_spools if past_spool[0] != spool)
    return Received(spool, number, past_spools[:PAST_SPOOLS], lost)
