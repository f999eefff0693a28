"""An agent's secrets, derived from the signing key, its id and its key number: nothing to store, nothing to lose.

Incrementing the key number changes all of them at once. The agent's token is random instead, and only its hash is
stored.
"""

import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tenants.crypto import purpose_key


def signing_key() -> Ed25519PrivateKey:
    """Return the key that signs commands."""
    return Ed25519PrivateKey.from_private_bytes(purpose_key("signing_key", "commands"))


def verifying_key() -> bytes:
    """Return the public key with which agents verify commands."""
    return signing_key().public_key().public_bytes_raw()


def sealing_key(agent: str, number: int) -> bytes:
    """Return the key that seals commands to this agent, and with which it seals its own files."""
    return _derived("sealing", agent, number)


def identity_secret(agent: str, number: int) -> bytes:
    """Return the secret with which gateways prove to this engine which caller a request is from.

    Gateways get it in their snapshots.
    """
    return _derived("identity", agent, number)


def broker_password(agent: str, number: int) -> str:
    return _derived("broker", agent, number).hex()


def installation_id() -> str:
    """Return a short, public id that separates this control plane's objects from another's on a server they share."""
    return purpose_key("signing_key", "installation").hex()[:12]


def _derived(purpose: str, agent: str, number: int) -> bytes:
    return hmac.digest(purpose_key("signing_key", "agents"), f"{purpose}\0{agent}\0{number}".encode(), "sha256")
