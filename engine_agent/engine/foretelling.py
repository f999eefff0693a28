"""Forecasts of other TTLs and limits for a namespace: curves over a grid, from its reuse gaps. Reads only.

The engine's thread makes a copy in a few milliseconds. The queries take far longer, so another thread runs them, with a
pause after each answer, and the engine never waits for them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_agent.cache.errors import CacheError
from engine_agent.cache.gaps import ReuseGaps
from engine_agent.cache.manager import BlockManager
from engine_agent.contracts.policy_fields import TtlMode

TTLS: Final = (
    *(10, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1_800),
    *(3_600, 7_200, 14_400, 28_800, 86_400, 172_800, 604_800),
)
CURVES: Final[tuple[tuple[TtlMode, float], ...]] = (
    *(("sliding", share) for share in (1.0, 0.75, 0.5, 0.25, 0.1)),
    ("absolute", 1.0),
)
PAUSE_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Foreteller:
    """A copy of one namespace's gaps, and the bounds in its policy."""

    gaps: ReuseGaps
    max_age_seconds: float
    block_bytes: int
    pool_bytes: int

    def told(self, pause: Callable[[float], object] = time.sleep) -> dict[str, Any]:
        curves = [self._curve(mode, share, pause) for mode, share in CURVES]
        return {"prompt_tokens": round(self.gaps.prompt_tokens), "ttls": list(TTLS), "curves": curves}

    def _curve(self, mode: TtlMode, share: float, pause: Callable[[float], object]) -> dict[str, Any]:
        points = list(self._points(mode, int(share * self.pool_bytes) // self.block_bytes, pause))
        ratios, sizes = [ratio for ratio, _ in points], [size for _, size in points]
        return {"ttl_mode": mode, "limit_share": share, "hit_ratios": ratios, "resident_bytes": sizes}

    def _points(
        self, mode: TtlMode, limit_blocks: int, pause: Callable[[float], object]
    ) -> Iterator[tuple[float, int]]:
        for ttl in TTLS:
            policy: dict[str, Any] = {
                "ttl_seconds": ttl,
                "ttl_mode": mode,
                "max_age_seconds": self.max_age_seconds,
                "limit_blocks": limit_blocks,
            }
            ratio, blocks = self.gaps.hit_ratio(**policy) or 0.0, self.gaps.resident_blocks(**policy) or 0.0
            yield round(ratio, 6), round(blocks * self.block_bytes)
            pause(PAUSE_SECONDS)


def foretellers(manager: BlockManager, namespaces: Iterable[str]) -> Mapping[str, Foreteller]:
    """Return forecasters for namespaces with data. Call this in the engine's thread."""
    foretellers_by_namespace = {}
    for name in namespaces:
        try:
            namespace = manager.cache.namespace(name)
            block_bytes = manager.page_bytes(namespace.policy.kv_dtype)
        except CacheError:  # not here any more, or served by another engine
            continue
        if namespace.gaps.prompt_tokens > 0:
            policy = namespace.policy
            pool_bytes = manager.pool().capacity_bytes
            foretellers_by_namespace[name] = Foreteller(
                namespace.gaps.still(), policy.max_age_seconds, block_bytes, pool_bytes
            )
    return foretellers_by_namespace
