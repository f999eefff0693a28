"""The Idempotency-Key header, and the fingerprint by which two requests are the same. Answers are stored elsewhere."""

import hashlib
import json
import re

from controlplane.api.errors import BadHeader, BadJson
from controlplane.api.strict_json import parse

HEADER = "Idempotency-Key"
_ACCEPTABLE = re.compile(r"[\x21-\x7e]{1,255}")


def idempotency_key(header: str | None) -> str | None:
    """Return the caller's key without the optional double quotes of the IETF draft, or None without the header."""
    if header is None:
        return None
    key = header.strip(" \t")
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _ACCEPTABLE.fullmatch(key):
        raise BadHeader(HEADER, "must be 1 to 255 visible ASCII characters without spaces, such as a UUID")
    return key


def request_fingerprint(*, method: str, path: str, query: str, body: bytes) -> str:
    """Return a hash that is the same if the request is repeated, even with its JSON reordered or respaced."""
    digest = hashlib.sha256()
    for part in (method.encode(), _bytes(path), _bytes(query), _canonical(body)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _canonical(body: bytes) -> bytes:
    try:
        return b"json" + json.dumps(parse(body), sort_keys=True, separators=(",", ":")).encode()
    except BadJson:
        return b"raw" + body


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
