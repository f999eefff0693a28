"""The heartbeat interval by the size of the fleet, and the silence after which an agent is stale. Pure.

A small fleet shows changes at once; a large one sends no more than a few hundred heartbeats a second.
"""

FASTEST_SECONDS, SLOWEST_SECONDS = 0.5, 5.0
FEW_AGENTS, MANY_AGENTS = 20, 1_000
LEAST_SILENCE_SECONDS = 3.0
MISSED_BEATS = 1.6  # one lost heartbeat makes no agent stale, yet a dead one is reported within 10 s


def cadence_seconds(agents: int) -> float:
    """Return the seconds between two heartbeats of an agent in a fleet of this size."""
    share = (min(max(agents, FEW_AGENTS), MANY_AGENTS) - FEW_AGENTS) / (MANY_AGENTS - FEW_AGENTS)
    return round(FASTEST_SECONDS + share * (SLOWEST_SECONDS - FASTEST_SECONDS), 3)


def stale_after_seconds(cadence: float) -> float:
    return max(LEAST_SILENCE_SECONDS, MISSED_BEATS * cadence)
