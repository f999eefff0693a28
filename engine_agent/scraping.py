"""Who may read `/metrics`: they say what every tenant does, and strangers reach the port that requests come by.

The control plane's own rule (controlplane/probes.py), and stricter where there is no token: what a proxy passed on is
not this machine. Nothing but the standard library.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

VARIABLE: Final = "LUMINET_METRICS_TOKEN"
REFUSAL: Final = f"Metrics are for the bearer of {VARIABLE}; where none is set, for this machine itself."
# What a proxy adds: who comes by one on this machine is not this machine.
_FOR_OTHERS: Final = ("forwarded", "via", "x-forwarded-for")


@dataclass(frozen=True, slots=True)
class Scrapers:
    """Once there is a token, it is asked of everybody; without one, who asks from here on their own behalf may read."""

    token: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        return cls(environ.get(VARIABLE, "").strip() or None)

    def may_read(self, headers: Mapping[str, str], host: str | None) -> bool:
        """`headers` by lower-case name; `host`: the address at the other end of the connection."""
        if self.token is None:
            return _is_loopback(host) and not any(name in headers for name in _FOR_OTHERS)
        offered = headers.get("authorization", "").encode(errors="replace")
        return hmac.compare_digest(offered, f"Bearer {self.token}".encode())


def _is_loopback(host: str | None) -> bool:
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
