"""The policy fields that our block manager enforces in every backend. Each backend declares the others in its folder.

Each line describes the code it names and is tested there; docs/policies.md has the same as a table.
"""

from engine_agent.contracts.enforcement import ENFORCED, Graded
from engine_agent.contracts.policy_fields import names

NO_DISK_TIER = Graded("refused", "no disk tier")

# Decided by the block manager (engine_agent/cache), which both backends share, before anything is computed.
BY_THE_BLOCK_MANAGER = dict.fromkeys(names(lambda field: field.enforcer == "block manager"), ENFORCED)
