"""Records as an engine's journal holds them."""

from dataclasses import replace

from engine_agent.journal.journal import Closed, Opened

OPENED = Opened(
    request_id="r-1",
    attempt=1,
    kind="customer",
    at=1_790_000_000.25,
    organisation_id="7",
    organisation="acme",
    namespace_id="12",
    namespace="default",
    policy_revision=3,
    model="demo",
    kv_dtype="fp8",
    prompt_tokens=512,
    cached_tokens=496,
    miss_reason="none",
    missed={"tail": 16},
)
CLOSED = Closed(
    opened=1,
    request_id="r-1",
    attempt=1,
    at=1_790_000_001.5,
    outcome="stop",
    generated_tokens=20,
    ttft_ms=12.5,
    duration_ms=300.0,
)


def opened(number: int) -> Opened:
    return replace(OPENED, request_id=f"r-{number}")


def closed(number: int) -> Closed:
    return replace(CLOSED, request_id=f"r-{number}")
