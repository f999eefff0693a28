"""An agent's secrets, derived from the signing key, its id and its number: nothing to store, nothing to lose.

Counting the number up changes all of them at once. Not among them is the agent's token: random, and only hashed.
"""

import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tenants.crypto import purpose_key


def signing_key() -> Ed25519PrivateKey:
    """What commands are signed with."""
    return Ed25519PrivateKey.from_private_bytes(purpose_key("signing_key", "commands"))


def verifying_key() -> bytes:
    """What agents check that with."""
    return signing_key().public_key().public_bytes_raw()


def sealing_key(agent: str, number: int) -> bytes:
    """What commands to this agent are sealed with, and what it seals its own files with."""
    return _derived("sealing", agent, number)


def identity_secret(agent: str, number: int) -> bytes:
    """By what this engine believes a gateway who it says is asking. Gateways get it in their snapshot."""
    return _derived("identity", agent, number)


def broker_password(agent: str, number: int) -> str:
    return _derived("broker", agent, number).hex()


def installation_id() -> str:
    """Short, and no secret: by it one control plane tells its own things from another's on a server they share."""
    return purpose_key("signing_key", "installation").hex()[:12]


def _derived(purpose: str, agent: str, number: int) -> bytes:
    return hmac.digest(purpose_key("signing_key", "agents"), f"{purpose}\0{agent}\0{number}".encode(), "sha256")
