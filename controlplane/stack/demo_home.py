"""Describes the demo's files and members in the embedded stack."""

from controlplane.demo.home import DemoHome, Joiner
from controlplane.stack.config import GATEWAY, StackConfig, join_token_file
from controlplane.stack.fleet_services import runs_fleet


def demo_home(config: StackConfig) -> DemoHome:
    return DemoHome(
        file=config.demo_file,
        proofs=config.run / "demo-proofs.json",
        gateway=config.gateway_url if runs_fleet(config) else None,
        backends=config.backends,
        joiners=_joiners(config),
    )


def _joiners(config: StackConfig) -> tuple[Joiner, ...]:
    if config.engine_port is None:
        return ()
    agents = (Joiner(agent.name, "engine", agent.home, agent.join_token_file) for agent in config.agents)
    return (*agents, Joiner(GATEWAY, "gateway", config.gateway, join_token_file(config.gateway)))
