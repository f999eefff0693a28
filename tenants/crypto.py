"""Keys for every purpose out of two secrets: sealing what must be read again, hashing what must only be recognised."""

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
NONCE_BYTES = 12


class Unreadable(Exception):
    """Something sealed cannot be opened: another master key, another place, or changed bytes."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A bearer secret at the only moment it exists in full."""

    secret: str = field(repr=False)
    prefix: str
    hash: bytes = field(repr=False)


def seal(plain: bytes, *, place: str) -> bytes:
    """Encrypt; `place` says whose it is and must be the same when it is opened, so rows cannot be swapped."""
    nonce = os.urandom(NONCE_BYTES)
    return VERSION + nonce + _aead().encrypt(nonce, plain, VERSION + place.encode())


def unseal(sealed: bytes | memoryview, *, place: str) -> bytes:
    data = bytes(sealed)
    try:
        return _aead().decrypt(data[1 : 1 + NONCE_BYTES], data[1 + NONCE_BYTES :], data[:1] + place.encode())
    except (InvalidTag, ValueError):
        raise Unreadable(place) from None


def secret_new(kind: str) -> NewSecret:
    """`lmk_…`: recognisable by scanners, its last letters a checksum, so that a typing error needs no look-up."""
    body = "".join(secrets.choice(ALPHABET) for _ in range(SECRET_LETTERS))
    secret = f"{kind}_{body}{_check(kind, body)}"
    return NewSecret(secret, secret[: len(kind) + 1 + PREFIX_LETTERS], secret_hash(secret))


def secret_is_well_formed(kind: str, secret: str) -> bool:
    body, check = secret[len(kind) + 1 : -CHECK_LETTERS], secret[-CHECK_LETTERS:]
    well_cut = secret.startswith(f"{kind}_") and len(body) == SECRET_LETTERS and secret.isascii()
    return well_cut and hmac.compare_digest(check, _check(kind, body))


def secret_hash(secret: str) -> bytes:
    """What is stored. Keyed, so that a stolen table is no list to try guesses on."""
    return hmac.digest(purpose_key("pepper", "bearer secrets"), secret.encode(), "sha256")


@lru_cache(maxsize=32)
def purpose_key(secret: str, purpose: str) -> bytes:
    """A key for one purpose, derived from one of the environment's secrets: none is ever used for two."""
    root: bytes = getattr(settings.ENVIRONMENT.secrets, secret)
    return hmac.digest(root, b"luminet " + purpose.encode(), "sha256")


@lru_cache(maxsize=1)
def _aead() -> AESGCM:
    return AESGCM(purpose_key("master_key", "sealing"))


def _check(kind: str, body: str) -> str:
    number = zlib.crc32(f"{kind}_{body}".encode())
    letters = ""
    for _ in range(CHECK_LETTERS):
        number, digit = divmod(number, len(ALPHABET))
        letters = ALPHABET[digit] + letters
    return letters
