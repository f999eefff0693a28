"""The preview of a publish: differences, namespaces concerned, shares, warnings. No I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine_agent.contracts.policy_fields import FIELDS, SECONDS, SHARES
from tenants.policy import Change

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class PreviewWarning:
    code: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentPool:
    """One agent's pool as reported, for the conversion of shares into blocks."""

    agent: str
    model: str
    pool_bytes: int
    block_tokens: int
    block_bytes: dict[str, int]  # by KV format


@dataclass(frozen=True, slots=True)
class ResolvedShare:
    """One share on one agent, in blocks, tokens and GiB."""

    agent: str
    field: str
    share: float
    blocks: int
    tokens: int
    gib: float


@dataclass(frozen=True, slots=True)
class ShareBand:
    """One share over all agents, for members, who must not learn the pools' sizes or the agents' names."""

    field: str
    share: float
    bytes_least: int
    bytes_most: int
    tokens_least: int
    tokens_most: int


def shares_banded(values: dict[str, Any], pools: Iterable[AgentPool]) -> Iterator[ShareBand]:
    """Yield each share from the smallest pool to the largest, with pool sizes rounded to powers of two.

    The rounding applies to pools and not to shares: otherwise a share moved across the edge of a range would reveal the
    pool's size.
    """
    kv_dtype = values["kv_dtype"]
    usable_pools = [pool for pool in pools if pool.pool_bytes and kv_dtype in pool.block_bytes]
    if not usable_pools:
        return
    sizes = [_power(pool.pool_bytes) for pool in usable_pools]
    tokens = [
        size / pool.block_bytes[kv_dtype] * pool.block_tokens for size, pool in zip(sizes, usable_pools, strict=True)
    ]
    for field in sorted(SHARES):
        share = values[field]
        bounds = share * min(sizes), 2 * share * max(sizes), share * min(tokens), 2 * share * max(tokens)
        yield ShareBand(field, share, *map(int, bounds))


def _power(number: int) -> int:
    """Return the largest power of two that is at most `number`."""
    return 1 << (number.bit_length() - 1)


def shares_resolved(values: dict[str, Any], pool: AgentPool) -> Iterator[ResolvedShare]:
    """Yield each share of the pool in whole blocks of the policy's format."""
    block_bytes = pool.block_bytes.get(values["kv_dtype"])
    for field in sorted(SHARES):
        if block_bytes is None:
            continue  # this agent does not support the format
        blocks = int(pool.pool_bytes * values[field] // block_bytes)
        gib = blocks * block_bytes / GIB
        yield ResolvedShare(pool.agent, field, values[field], blocks, blocks * pool.block_tokens, round(gib, 3))


def warnings_for(changes: Sequence[Change], values: dict[str, Any]) -> Iterator[PreviewWarning]:
    for change in changes:
        yield from _warnings_of(change)
    if values["pin_share"] > 0 and not values["prefix_caching"]:
        yield PreviewWarning(
            "pins_without_caching", "pin_share", "Pins are budgeted, but prefix_caching is off: they hold nothing."
        )
    if values["prefix_caching"] and values["limit_share"] == 0:
        yield PreviewWarning("no_room", "limit_share", "limit_share is 0: nothing can be kept, every request misses.")


def _warnings_of(change: Change) -> Iterator[PreviewWarning]:
    where = f" for {change.model}" if change.model else ""
    for consequence in FIELDS[change.field].consequences:
        if consequence.follows(change.before, change.after):
            message = consequence.words(change.before, change.after, where)
            yield PreviewWarning(consequence.code, change.field, message)


def effects_of(changes: Iterable[Change]) -> Iterator[str]:
    """Yield each change as a sentence."""
    for change in changes:
        where = f" (model {change.model})" if change.model else ""
        yield f"{change.field}{where}: {shown(change.field, change.before)} → {shown(change.field, change.after)}"


def shown(field: str, value: Any) -> str:
    """Return the value with its usual unit."""
    if value is None:
        return "none"
    if field in SECONDS:
        return duration(value)
    if field in SHARES:
        return f"{value:.1%} of each pool"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def duration(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
