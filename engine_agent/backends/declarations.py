"""What every backend enforces of a policy whose block manager is ours. Each declares the rest in its own folder.

Each line is true of the code that it names, and tested there; docs/policies.md is the same as a table.
"""

from engine_agent.contracts.enforcement import ENFORCED, Graded
from engine_agent.contracts.policy_fields import names

NO_DISK_TIER = Graded("refused", "no disk tier")

# Decided by the block manager (engine_agent/cache), which is the same in both backends, before anything is computed.
BY_THE_BLOCK_MANAGER = dict.fromkeys(names(lambda field: field.enforcer == "block manager"), ENFORCED)
