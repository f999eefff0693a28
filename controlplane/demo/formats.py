"""The KV format of a demo with vLLM agents: one that both of its backends may serve."""

from controlplane.demo.home import DemoHome
from tenants.actor import Actor
from tenants.levels import FLEET, level_of
from tenants.policy import Policy
from tenants.services.policies import policy_publish

NOTE = "fp8 was not measured on vLLM; bf16, which formats are measured against, may be served by both backends"
POLICY = Policy(kv_dtype="bf16", request_kv_dtypes=["fp8", "int4"])


def demo_formats_seed(home: DemoHome, *, actor: Actor) -> None:
    """Publish the format for the fleet if the fleet has no revision yet. A policy that the operator published stays."""
    if "vllm" in home.backends and level_of(FLEET).revision == 0:
        policy_publish(actor=actor, place=FLEET, policy=POLICY, expected=frozenset({0}), note=NOTE)
