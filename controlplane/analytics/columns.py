"""The summed columns: the same in minutes and in pieces, so that minutes add up to pieces."""

from collections.abc import Mapping
from typing import Final

from engine_agent.contracts.usage import COUNTS, KEY_COUNTS
from engine_agent.contracts.wire import MISSED

MISSED_COLUMN: Final[Mapping[str, str]] = {reason: f"missed_{reason.replace('-', '_')}" for reason in MISSED}
MISSED_COLUMNS: Final = tuple(MISSED_COLUMN.values())
BLOCK_COLUMNS: Final = ("expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks")  # of rows of kind "cache"
ADDED: Final = (*COUNTS, *MISSED_COLUMNS, *BLOCK_COLUMNS)
KEY_ADDED: Final = KEY_COUNTS  # by key, for customers only
CACHE_KIND: Final = "cache"  # the kind of rows that count blocks, not requests
CUSTOMER_KIND: Final = "customer"

# Latency histograms are `bigint[]` of code << COUNT_BITS | count, in any order; a code may occur more than once.
COUNT_BITS: Final = 32
