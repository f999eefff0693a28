"""Title and advice for an operation: how many agents have proved it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.words import counted

KINDS = {
    "purge": "The purge",
    "drain": "Draining",
    "resume": "Resuming",
    "warm_pins": "Warming pins",
    "integrity": "The look whether all is in order",
    "rotate_token": "Another token",
}
Receipts = Sequence[Mapping[str, Any]]


def title(*, kind: str, scope: str, state: str, receipts: Receipts, awaited: Sequence[str]) -> str:
    name = f"{KINDS.get(kind, kind.replace('_', ' ').capitalize())} of {scope}"
    proved, agents = sum(not receipt.get("note") for receipt in receipts), len(receipts) + len(awaited)
    if not agents:
        return f"{name} is done: no agent was concerned"
    if state == "running":
        return f"{name}: {proved} of {counted(agents, 'agent')} {'has' if proved == 1 else 'have'} proved it"
    if proved == agents:
        return f"{name} is done: {'the only agent has' if agents == 1 else f'all {agents} agents have'} proved it"
    return (
        f"{name} {'has failed' if state == 'failed' else 'is over'}: {proved} of {counted(agents, 'agent')} proved it"
    )


def advice(*, kind: str, receipts: Receipts, awaited: Sequence[str]) -> str:
    if kind != "purge":
        return f"{counted(len(receipts), 'receipt')}, {len(awaited)} awaited."
    blocks, size = (sum(int(receipt.get(name, 0)) for receipt in receipts) for name in ("blocks", "bytes"))
    proof_text = f"{blocks:,} block{'' if blocks == 1 else 's'}, {bytes_text(size)}, proved gone." if receipts else ""
    return f"Nothing cached before can match any more, wherever it lies. {proof_text}".strip()
