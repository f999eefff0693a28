"""Counters of a sidecar that has done nothing yet."""

from typing import get_args

from prometheus_client import generate_latest

from engine_agent.sidecar.effects import Outcome
from engine_agent.sidecar.metrics import SidecarMetrics


def test_commands_are_counted_from_zero() -> None:
    """Prometheus has a rate of what it saw twice only: an agent's first command would be missed."""
    shown = generate_latest(SidecarMetrics().registry).decode()
    assert get_args(Outcome)
    for outcome in (*get_args(Outcome), "unsettled"):
        assert f'luminet_sidecar_commands_total{{outcome="{outcome}"}} 0.0' in shown
