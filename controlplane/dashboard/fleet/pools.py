"""An agent's pool as a stacked bar: what fills it, by namespace and KV format, as agents tell it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from controlplane.analytics.agents import FleetPools, Held, PoolHeld
from controlplane.dashboard.frame.charts import Bar, bar, bytes_text, share_text
from controlplane.dashboard.frame.words import counted
from controlplane.fleet.quality import format_words

KINDS = ("first", "second", "fourth")  # of what holds most; how many are named in a bar
OTHERS = "third"
NOTHING = PoolHeld((), 0, 0)
NOT_TOLD = "not told"
PLAIN: Mapping[str, str] = MappingProxyType({})  # every format is computed as it is called


@dataclass(frozen=True, slots=True)
class Pool:
    """`percent` None: it has not told. `bar` None: there is nothing to show."""

    title: str
    percent: int | None
    used: str
    bar: Bar | None
    told_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldRow:
    namespace: str
    size: str
    share: str
    kv_dtype: str
    kind: str  # its colour in the bar


def pool(told: dict[str, Any], held: PoolHeld, computed_as: Mapping[str, str] = PLAIN) -> Pool:
    """`told`: an agent's pool as fleet.views.agent_view says it. Of `held` as many are named as there are KINDS."""
    capacity, used = told["capacity_bytes"], told["used_bytes"]
    if not capacity or used is None:
        return Pool("Its pool is not known yet", None, "–", None, None)
    percent = round(100 * used / capacity)
    named, rest = held.top[: len(KINDS)], held.top[len(KINDS) :]
    parts = [(label(one, computed_as), float(one.bytes), kind) for one, kind in zip(named, KINDS, strict=False)]
    many, others = held.others + len(rest), held.others_bytes + sum(one.bytes for one in rest)
    if others:
        parts.append((f"{counted(many, 'other')}", float(others), OTHERS))
    shown = bar(f"Pool {percent} % used", parts, unit="bytes", whole=max(capacity, sum(size for _, size, _ in parts)))
    at = max((one.at for one in held.top), default=None)
    return Pool(
        f"{bytes_text(used)} of {bytes_text(capacity)} are used, {percent} %",
        percent,
        f"{bytes_text(used)} of {bytes_text(capacity)}",
        shown,
        at,
    )


def label(one: Held, computed_as: Mapping[str, str] = PLAIN) -> str:
    """`computed_as`: of the one agent whose pool it is."""
    return f"{one.namespace} · {format_words(one.kv_dtype, computed_as)}" if one.kv_dtype else one.namespace


def held_rows(held: PoolHeld, capacity: int, computed_as: Mapping[str, str] = PLAIN) -> list[HeldRow]:
    kinds = [*KINDS, *[OTHERS] * len(held.top)]
    rows = [
        HeldRow(
            one.namespace,
            bytes_text(one.bytes),
            share_text(one.bytes, capacity),
            format_words(one.kv_dtype, computed_as) if one.kv_dtype else NOT_TOLD,
            kind,
        )
        for one, kind in zip(held.top, kinds, strict=False)
    ]
    if held.others:
        size, share = bytes_text(held.others_bytes), share_text(held.others_bytes, capacity)
        rows.append(HeldRow(counted(held.others, "other namespace"), size, share, "–", OTHERS))
    return rows


# All agents' pools beside each other: colours mean the same in each


def fleet_bar(
    told: dict[str, Any], held: Sequence[int], top: Sequence[Held], computed_as: Mapping[str, str] = PLAIN
) -> Bar | None:
    """Of one agent; `held`: bytes of each of `top`, then of all others."""
    capacity = told["capacity_bytes"]
    if not capacity or told["used_bytes"] is None:
        return None
    names = [*(label(one, computed_as) for one in top), "others"]
    kinds = [*KINDS[: len(top)], OTHERS]
    parts = [(name, float(size), kind) for name, size, kind in zip(names, held, kinds, strict=False) if size]
    listed = ", ".join(f"{name} {bytes_text(size)}" for name, size, _ in parts)
    return bar(
        f"Holds {listed}" if listed else "Holds nothing told", parts, unit="bytes", whole=max(capacity, sum(held))
    )


def legend(pools: FleetPools) -> list[tuple[str, str, str]]:
    """(kind, name with its format, how much in all pools)."""
    named = [(kind, label(one), bytes_text(one.bytes)) for kind, one in zip(KINDS, pools.top, strict=False)]
    others = sum(sizes[-1] for sizes in pools.by_agent.values())
    return [*named, (OTHERS, "others", bytes_text(others))] if others else named
