"""What every backend enforces of a policy whose block manager is ours. Each declares the rest in its own folder.

Each line is true of the code that it names, and tested there; docs/enforcement.md is the same as a table.
"""

from engine_agent.contracts.enforcement import ENFORCED, Graded

NO_DISK_TIER = Graded("refused", "no disk tier")

# Decided by the block manager (engine_agent/cache), which is the same in both backends, before anything is computed.
BY_THE_BLOCK_MANAGER = {
    "prefix_caching": ENFORCED,
    "ttl_seconds": ENFORCED,
    "ttl_mode": ENFORCED,
    "max_age_seconds": ENFORCED,
    "request_kv_dtypes": ENFORCED,  # engine/held.py: a request for any other format is refused
    "reserved_share": ENFORCED,
    "limit_share": ENFORCED,
    "pin_share": ENFORCED,
}
