"""How often agents report, by how many there are, and after which silence one counts as stale. Pure.

A small fleet is seen at once; a large one costs the control plane no more than a few hundred heartbeats a second.
"""

FASTEST_SECONDS, SLOWEST_SECONDS = 0.5, 5.0
FEW_AGENTS, MANY_AGENTS = 20, 1_000
LEAST_SILENCE_SECONDS = 3.0
MISSED_BEATS = 1.6  # one lost heartbeat alone makes nobody stale, and a dead agent is named within 10 s


def cadence_seconds(agents: int) -> float:
    """Seconds between two heartbeats of each of so many agents."""
    share = (min(max(agents, FEW_AGENTS), MANY_AGENTS) - FEW_AGENTS) / (MANY_AGENTS - FEW_AGENTS)
    return round(FASTEST_SECONDS + share * (SLOWEST_SECONDS - FASTEST_SECONDS), 3)


def stale_after_seconds(cadence: float) -> float:
    return max(LEAST_SILENCE_SECONDS, MISSED_BEATS * cadence)
