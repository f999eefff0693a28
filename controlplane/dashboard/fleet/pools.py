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


def pool_bar(pool: dict[str, Any], pool_contents: PoolHeld, computed_as: Mapping[str, str] = PLAIN) -> Bar | None:
    """Return an agent's pool (from fleet.views.agent_view) as a bar, with as many named parts as KINDS."""
    capacity, percent = pool["capacity_bytes"], percent_used(pool)
    if percent is None:
        return None
    named_parts, other_parts = pool_contents.top[: len(KINDS)], pool_contents.top[len(KINDS) :]
    parts = [
        (label(part, computed_as), float(part.bytes), kind) for part, kind in zip(named_parts, KINDS, strict=False)
    ]
    other_count, other_bytes = (
        pool_contents.others + len(other_parts),
        pool_contents.others_bytes + sum(part.bytes for part in other_parts),
    )
    if other_bytes:
        parts.append((f"{counted(other_count, 'other')}", float(other_bytes), OTHERS))
    return bar(f"Pool {percent} % used", parts, unit="bytes", whole=max(capacity, sum(size for _, size, _ in parts)))


def label(part: Held, computed_as: Mapping[str, str] = PLAIN) -> str:
    """Return namespace and KV format. `computed_as`: formats that this agent computes as another."""
    return f"{part.namespace} · {format_words(part.kv_dtype, computed_as)}" if part.kv_dtype else part.namespace


def held_rows(pool_contents: PoolHeld) -> list[tuple[Held, str]]:
    """Return each part with its colour in the bar."""
    return list(zip(pool_contents.top, [*KINDS, *[OTHERS] * len(pool_contents.top)], strict=False))


# Pools of all agents side by side, with the same colours in each


def fleet_bar(
    pool: dict[str, Any], sizes: Sequence[int], top: Sequence[Held], computed_as: Mapping[str, str] = PLAIN
) -> Bar | None:
    """Return one agent's bar. `sizes`: bytes of each of `top`, then of all others."""
    capacity = pool["capacity_bytes"]
    if not capacity or pool["used_bytes"] is None:
        return None
    names = [*(label(part, computed_as) for part in top), "others"]
    kinds = [*KINDS[: len(top)], OTHERS]
    parts = [(name, float(size), kind) for name, size, kind in zip(names, sizes, kinds, strict=False) if size]
    listed = ", ".join(f"{name} {bytes_text(size)}" for name, size, _ in parts)
    return bar(
        f"Holds {listed}" if listed else "Holds nothing told", parts, unit="bytes", whole=max(capacity, sum(sizes))
    )


def legend(pools: FleetPools) -> list[tuple[str, str, str]]:
    """Return (colour, namespace and format, bytes in all pools) for each part."""
    named_parts = [(kind, label(part), bytes_text(part.bytes)) for kind, part in zip(KINDS, pools.top, strict=False)]
    other_bytes = sum(sizes[-1] for sizes in pools.by_agent.values())
    return [*named_parts, (OTHERS, "others", bytes_text(other_bytes))] if other_bytes else named_parts
