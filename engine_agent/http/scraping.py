"""Decides who may read `/metrics`: they show every tenant's activity, on a port that is open to clients.

Web, gateway, engine and sidecar share this rule. Needs only the standard library.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

VARIABLE: Final = "LUMINET_METRICS_TOKEN"
REFUSAL: Final = f"Metrics are for the bearer of {VARIABLE}; where none is set, for this machine itself."
# Headers that a proxy adds: a client that comes through a proxy on this machine is not local.
_FOR_OTHERS: Final = frozenset({"forwarded", "via"})
_FOR_OTHERS_PREFIX: Final = "x-forwarded-"


@dataclass(frozen=True, slots=True)
class Scrapers:
    """Clients that may read metrics: with a token, those that send it; without one, local ones without a proxy."""

    token: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        return cls(environ.get(VARIABLE, "").strip() or None)

    def may_read(self, headers: Mapping[str, str], host: str | None) -> bool:
        """Return whether a client may read. `headers` have lower-case names; `host` is the client's address."""
        if self.token is None:
            return _is_loopback(host) and not any(map(_is_for_others, headers))
        offered = headers.get("authorization", "").encode(errors="replace")
        return hmac.compare_digest(offered, f"Bearer {self.token}".encode())


def _is_for_others(name: str) -> bool:
    return name in _FOR_OTHERS or name.startswith(_FOR_OTHERS_PREFIX)


def _is_loopback(host: str | None) -> bool:
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
