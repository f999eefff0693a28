"""Keys for each purpose, derived from two secrets.

Values to be read again are sealed, values to be recognised are hashed.
"""

import hmac
import os
import secrets
import string
import zlib
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
SECRET_LETTERS = 43  # 256 bits
CHECK_LETTERS = 6
PREFIX_LETTERS = 8
VERSION = b"\x01"
KEY_ID_BYTES = 4
NONCE_BYTES = 12
HEAD_BYTES = 1 + KEY_ID_BYTES + NONCE_BYTES


class Unreadable(Exception):
    """A sealed value cannot be opened: another master key, another place, or changed bytes."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A new bearer secret. The full secret exists only here."""

    secret: str = field(repr=False)
    prefix: str
    hash: bytes = field(repr=False)


def seal(plain: bytes, *, place: str) -> bytes:
    """Encrypt. `place` names the row and must be the same for `unseal`, so rows cannot be swapped."""
    key_id, aead = _aeads()[0]
    nonce = os.urandom(NONCE_BYTES)
    return VERSION + key_id + nonce + aead.encrypt(nonce, plain, VERSION + place.encode())


def unseal(sealed: bytes | memoryview, *, place: str) -> bytes:
    data = bytes(sealed)
    version, key_id, nonce = data[:1], data[1 : 1 + KEY_ID_BYTES], data[1 + KEY_ID_BYTES : HEAD_BYTES]
    try:
        return dict(_aeads())[key_id].decrypt(nonce, data[HEAD_BYTES:], version + place.encode())
    except (InvalidTag, ValueError, KeyError):
        raise Unreadable(place) from None


def is_sealed_anew(sealed: bytes | memoryview) -> bool:
    """Return whether the value is sealed with the current master key, not the previous one."""
    return bytes(sealed[1 : 1 + KEY_ID_BYTES]) == _aeads()[0][0]


def secret_new(kind: str) -> NewSecret:
    secret = secret_text(kind)
    return NewSecret(secret, secret_prefix(secret), secret_hash(secret))


def secret_text(kind: str) -> str:
    """Return a secret like `lmk_…`, recognisable by scanners.

    Its last letters are a checksum, so a typo needs no lookup.
    """
    body = "".join(secrets.choice(ALPHABET) for _ in range(SECRET_LETTERS))
    return f"{kind}_{body}{_check(kind, body)}"


def secret_prefix(secret: str) -> str:
    """Return the start of a secret, by which people recognise it."""
    return secret[: secret.index("_") + 1 + PREFIX_LETTERS]


def secret_is_well_formed(kind: str, secret: str) -> bool:
    body, check = secret[len(kind) + 1 : -CHECK_LETTERS], secret[-CHECK_LETTERS:]
    is_well_formed = secret.startswith(f"{kind}_") and len(body) == SECRET_LETTERS and secret.isascii()
    return is_well_formed and hmac.compare_digest(check, _check(kind, body))


def secret_hash(secret: str) -> bytes:
    """Return the hash to store. It is keyed, so that guesses cannot be tested against a stolen table."""
    return hmac.digest(key_check_secret(), secret.encode(), "sha256")


def key_check_secret() -> bytes:
    """Return the key of `secret_hash`, with which gateways check API keys: their snapshots contain HMAC-SHA256 hashes.

    Gateways get it when they enrol, sealed and never in a snapshot; engines do not need it.
    """
    return purpose_key("pepper", "bearer secrets")


@lru_cache(maxsize=32)
def purpose_key(secret: str, purpose: str) -> bytes:
    """Return a key for one purpose, derived from a secret of the environment. No key serves two purposes."""
    root: bytes = getattr(settings.ENVIRONMENT.secrets, secret)
    return _for_purpose(root, purpose)


def previous_signing_keys(purpose: str) -> list[bytes]:
    """Return the values of `purpose_key("signing_key", purpose)` under the previous signing keys, newest first."""
    return [_for_purpose(root, purpose) for root in settings.ENVIRONMENT.secrets.previous_signing_keys]


def _for_purpose(root: bytes, purpose: str) -> bytes:
    return hmac.digest(root, b"luminet " + purpose.encode(), "sha256")


@lru_cache(maxsize=1)
def _aeads() -> tuple[tuple[bytes, AESGCM], ...]:
    """Return ciphers with their key ids: the current master key first, then the previous one if there is one."""
    names = ["master_key"]
    if settings.ENVIRONMENT.secrets.previous_master_key is not None:
        names.append("previous_master_key")
    keys = [purpose_key(name, "sealing") for name in names]
    return tuple((hmac.digest(key, b"name", "sha256")[:KEY_ID_BYTES], AESGCM(key)) for key in keys)


def _check(kind: str, body: str) -> str:
    number = zlib.crc32(f"{kind}_{body}".encode())
    letters = ""
    for _ in range(CHECK_LETTERS):
        number, digit = divmod(number, len(ALPHABET))
        letters = ALPHABET[digit] + letters
    return letters
