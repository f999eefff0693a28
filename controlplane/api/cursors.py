"""Cursors: the start of a list's next page, as an opaque text that the caller sends back.

A cursor is encrypted, so that callers can neither forge nor read it: a record's number would reveal the activity of
others. It is bound to its `kind`, the list and its owner (`keys:<organisation>`), so a cursor of another list or
another organisation is refused.
"""

import base64
import binascii
import os
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from controlplane.api.errors import BadCursor

LONGEST_CURSOR = 1024
_NONCE_BYTES = 12


def cursor_encode(kind: str, value: str | int, *, key: bytes) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    plain = (b"i" if isinstance(value, int) else b"s") + str(value).encode()
    return _text(nonce + AESGCM(key).encrypt(nonce, plain, kind.encode()))


def cursor_decode(kind: str, text: str, *, key: bytes) -> str | int:
    sealed = _bytes(text)
    try:
        plain = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], kind.encode())
    except (InvalidTag, ValueError):
        _refuse()
    value = plain[1:].decode()
    return int(value) if plain.startswith(b"i") else value


def _bytes(text: str) -> bytes:
    if len(text) > LONGEST_CURSOR or not text.isascii():
        _refuse()
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        _refuse()
    if _text(decoded) != text:  # one cursor has one spelling
        _refuse()
    return decoded


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _refuse() -> NoReturn:
    raise BadCursor("cursor", "is not one this list gave out: use next_cursor of the page before, or leave it out")
