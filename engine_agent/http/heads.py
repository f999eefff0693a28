"""Finds faults in a request's head that the parser accepts, and that a proxy may read differently (RFC 9112)."""

import re
from collections.abc import Iterable

VERSIONS = ("1.0", "1.1")
_HOST = re.compile(rb"(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


def head_problem(version: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what is wrong with a head, for the client, or None. Names must be in lower case, and values without white
    space around them.
    """
    hosts, encodings = [], []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            encodings.append(value)
    return _version_problem(version) or _host_problem(version, hosts) or _encoding_problem(version, encodings)


def _version_problem(version: str) -> str | None:
    return None if version in VERSIONS else f"HTTP/{version} is not supported. Use HTTP/1.1."


def _host_problem(version: str, hosts: list[bytes]) -> str | None:
    if not hosts and version == "1.0":
        return None
    if len(hosts) != 1:
        return f"An HTTP/{version} request has one Host header, not {len(hosts)}."
    return None if _HOST.fullmatch(hosts[0]) else "The Host header is not a host name with an optional port."


def _encoding_problem(version: str, encodings: list[bytes]) -> str | None:
    """Return what is wrong: a proxy in front may know other encodings, and see the body end elsewhere."""
    if not encodings:
        return None
    if version == "1.0":
        return "HTTP/1.0 has no Transfer-Encoding. Send a Content-Length."
    if len(encodings) != 1 or encodings[0].lower() != b"chunked":
        return "The only Transfer-Encoding is chunked, once."
    return None
