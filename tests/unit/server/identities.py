"""Who asks in these tests: somebody with the one key of an engine alone, and somebody a gateway vouches for."""

from engine_agent.contracts.identity import LIFETIME_SECONDS, Identity

SECRET, OTHER = b"s" * 32, b"o" * 32
NOW = 1_800_000_000.0
IDENTITY = Identity(
    organisation_id="018f",
    organisation="acme",
    namespace_id="ns-1",
    namespace="default",
    scope="infer",
    policy_revision=7,
    request_id="req-1",
    attempt=1,
    kind="customer",
    deadline=NOW + 60,
    issued_at=NOW,
    expires_at=NOW + LIFETIME_SECONDS,
    audience="agent-1",
)
KEY = "sk-test"
LOCAL = Identity(
    organisation_id="org-1",
    organisation="acme",
    namespace_id="ns-1",
    namespace="default",
    scope="infer",
    policy_revision=0,
    request_id="unused",
    attempt=1,
    kind="customer",
    deadline=None,
    issued_at=0.0,
    expires_at=0.0,
    audience="agent-1",
)
