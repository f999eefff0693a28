"""Counts a server's open connections against limits, in total and for each address. Pure counting, no sockets."""

import ipaddress
from collections import Counter
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))
IPV6_PREFIX = 64  # a provider gives each customer all addresses behind these bits


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections a server keeps open; None: no limit. Addresses in `exempt` networks count only towards the
    total, because a proxy has one address for all its clients.
    """

    total: int | None = None
    per_address: int | None = None
    exempt: tuple[Network, ...] = ()


def half_for_one_address(total: int) -> ConnectionLimits:
    """Return limits for a server that knows no proxies: no address, not even a proxy's, can take all connections."""
    return ConnectionLimits(total, max(1, total // 2), exempt=LOOPBACK)


class OpenConnections:
    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits, self._total = limits, 0
        self._by_client: Counter[str] = Counter()

    def problem(self, address: str | None) -> str | None:
        """Return why there is no room for another connection from this address, or None."""
        limits = self._limits
        if limits.total is not None and self._total >= limits.total:
            return "More connections are open than this server has room for."
        client = self._client(address)
        if client is not None and limits.per_address is not None and self._by_client[client] >= limits.per_address:
            return f"One address may have {limits.per_address:,} connections open here: close some, or reuse them."
        return None

    def add(self, address: str | None) -> None:
        self._total += 1
        if (client := self._client(address)) is not None:
            self._by_client[client] += 1

    def remove(self, address: str | None) -> None:
        self._total -= 1
        if (client := self._client(address)) is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _client(self, address: str | None) -> str | None:
        """Return the key to count connections by; None if they are not counted: Unix sockets, exempt networks."""
        if self._limits.per_address is None:
            return None
        try:
            ip = ipaddress.ip_address(address or "")
        except ValueError:
            return None
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if any(ip in network for network in self._limits.exempt):
            return None
        if isinstance(ip, ipaddress.IPv4Address):
            return str(ip)
        return str(ipaddress.ip_network((int(ip), IPV6_PREFIX), strict=False))
