"""An operation in words: what agents are to prove, and who has. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.words import counted

MOST_SHOWN = 200
KINDS = {
    "purge": "The purge",
    "drain": "Draining",
    "resume": "Resuming",
    "warm_pins": "Warming pins",
    "integrity": "The look whether all is in order",
    "rotate_token": "Another token",
}
STATES = {"running": Tag("running", "info"), "done": Tag("done", "ok"), "failed": Tag("failed", "bad")}


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """`at` None: it is awaited."""

    agent: str
    scope: str
    blocks: str
    size: str
    state: Tag
    at: datetime | None
    note: str


@dataclass(frozen=True, slots=True)
class Told:
    kind: str
    title: str
    advice: str
    state: Tag
    rows: tuple[ReceiptRow, ...]
    unshown: int
    seen: int  # receipts that this page has shown
    is_over: bool


def told(*, kind: str, scope: str, state: str, receipts: Sequence[Mapping[str, Any]], awaited: Sequence[str]) -> Told:
    what = f"{KINDS.get(kind, kind.replace('_', ' ').capitalize())} of {scope}"
    proved = [one for one in receipts if not one.get("note")]
    rows = [*(_awaited(agent, scope) for agent in awaited), *map(_receipt, reversed(receipts))]
    return Told(
        kind=kind,
        title=_title(what, state, len(proved), len(receipts) + len(awaited)),
        advice=_advice(kind, receipts, awaited),
        state=STATES[state],
        rows=tuple(rows[:MOST_SHOWN]),
        unshown=len(rows) - len(rows[:MOST_SHOWN]),
        seen=len(receipts),
        is_over=state != "running",
    )


def _title(what: str, state: str, proved: int, all_: int) -> str:
    if not all_:
        return f"{what} is done: no agent was concerned"
    if state == "running":
        return f"{what}: {proved} of {counted(all_, 'agent')} {'has' if proved == 1 else 'have'} proved it"
    if proved == all_:
        return f"{what} is done: {'the only agent has' if all_ == 1 else f'all {all_} agents have'} proved it"
    return f"{what} {'has failed' if state == 'failed' else 'is over'}: {proved} of {counted(all_, 'agent')} proved it"


def _advice(kind: str, receipts: Sequence[Mapping[str, Any]], awaited: Sequence[str]) -> str:
    if kind != "purge":
        return f"{counted(len(receipts), 'receipt')}, {len(awaited)} awaited."
    blocks, size = (sum(int(one.get(name, 0)) for one in receipts) for name in ("blocks", "bytes"))
    gone = f"{blocks:,} block{'' if blocks == 1 else 's'}, {bytes_text(size)}, proved gone." if receipts else ""
    return f"Nothing cached before can match any more, wherever it lies. {gone}".strip()


def _awaited(agent: str, scope: str) -> ReceiptRow:
    return ReceiptRow(agent, scope, "–", "–", Tag("awaited", "info"), None, "")


def _receipt(one: Mapping[str, Any]) -> ReceiptRow:
    note = str(one.get("note") or "")
    return ReceiptRow(
        agent=one["agent"],
        scope=one["scope"],
        blocks=f"{one['blocks']:,}",
        size=bytes_text(one["bytes"]),
        state=Tag("no proof", "warn") if note else Tag("proved", "ok"),
        at=datetime.fromisoformat(one["at"]),
        note=note,
    )
