"""An agent's pool as a stacked bar by namespace and KV format, as the agent reported it. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from controlplane.analytics.agents import FleetPools, Held, PoolHeld
from controlplane.dashboard.fleet.rows import percent_used
from controlplane.dashboard.frame.charts import Bar, bar, bytes_text
from controlplane.dashboard.frame.words import counted
from controlplane.fleet.quality import format_words

KINDS = ("first", "second", "fourth")  # colours of the largest parts, and so how many parts a bar names
OTHERS = "third"
NOTHING = PoolHeld((), 0, 0)
PLAIN: Mapping[str, str] = MappingProxyType({})  # the agent computes every format as named


def pool_bar(told: dict[str, Any], held: PoolHeld, computed_as: Mapping[str, str] = PLAIN) -> Bar | None:
    """Return an agent's pool (from fleet.views.agent_view) as a bar, with as many named parts as KINDS."""
    capacity, percent = told["capacity_bytes"], percent_used(told)
    if percent is None:
        return None
    named, rest = held.top[: len(KINDS)], held.top[len(KINDS) :]
    parts = [(label(one, computed_as), float(one.bytes), kind) for one, kind in zip(named, KINDS, strict=False)]
    many, others = held.others + len(rest), held.others_bytes + sum(one.bytes for one in rest)
    if others:
        parts.append((f"{counted(many, 'other')}", float(others), OTHERS))
    return bar(f"Pool {percent} % used", parts, unit="bytes", whole=max(capacity, sum(size for _, size, _ in parts)))


def label(one: Held, computed_as: Mapping[str, str] = PLAIN) -> str:
    """Return namespace and KV format. `computed_as`: formats that this agent computes as another."""
    return f"{one.namespace} · {format_words(one.kv_dtype, computed_as)}" if one.kv_dtype else one.namespace


def held_rows(held: PoolHeld) -> list[tuple[Held, str]]:
    """Return each part with its colour in the bar."""
    return list(zip(held.top, [*KINDS, *[OTHERS] * len(held.top)], strict=False))


# Pools of all agents side by side, with the same colours in each


def fleet_bar(
    told: dict[str, Any], held: Sequence[int], top: Sequence[Held], computed_as: Mapping[str, str] = PLAIN
) -> Bar | None:
    """Return one agent's bar. `held`: bytes of each of `top`, then of all others."""
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
    """Return (colour, namespace and format, bytes in all pools) for each part."""
    named = [(kind, label(one), bytes_text(one.bytes)) for kind, one in zip(KINDS, pools.top, strict=False)]
    others = sum(sizes[-1] for sizes in pools.by_agent.values())
    return [*named, (OTHERS, "others", bytes_text(others))] if others else named
