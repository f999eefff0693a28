"""Sealed commands: only the agent can read them, and only the control plane can have written them.

    v1.<sealed>.<signature>       both in base64url without padding

`sealed` is AES-256-GCM under the agent's own key, `signature` Ed25519 over everything before it. Both cover the agent's
id, so no other agent accepts the message. Snapshots on an agent's disk are sealed the same way.
"""

import base64
import os

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_VERSION = "v1"


class Unsealable(Exception):
    """The message is for another reader, from another writer, or altered. `reason` is one of wire.REFUSAL_REASONS."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def command_seal(message: bytes, *, agent: str, key: bytes, signing: Ed25519PrivateKey) -> str:
    head = f"{_VERSION}.{_text(seal(message, key=key, place=f'command {agent}'))}"
    return f"{head}.{_text(signing.sign(_signed(head, agent)))}"


def command_open(sealed: str, *, agent: str, key: bytes, verifying: Ed25519PublicKey) -> bytes:
    """Open a command. Raise Unsealable. The signature is checked first, so that no forged command is decrypted."""
    head, _, signature = sealed.rpartition(".")
    version, _, content = head.partition(".")
    if not sealed.isascii() or version != _VERSION:
        raise Unsealable("malformed")
    try:
        verifying.verify(_bytes(signature), _signed(head, agent))
    except (InvalidSignature, ValueError):
        raise Unsealable("forged") from None
    try:
        return unseal(_bytes(content), key=key, place=f"command {agent}")
    except (InvalidTag, ValueError):
        raise Unsealable("corrupt") from None


def seal(plain: bytes, *, key: bytes, place: str) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, place.encode())


def unseal(sealed: bytes, *, key: bytes, place: str) -> bytes:
    """Decrypt. Raise InvalidTag or ValueError."""
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place.encode())


def verifying_key(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)


def _signed(head: str, agent: str) -> bytes:
    return b"luminet command\0" + agent.encode() + b"\0" + head.encode()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
