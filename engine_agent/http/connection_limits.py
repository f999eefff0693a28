"""How many connections a server keeps open: in total, and from one address. Pure counting, no sockets."""

import ipaddress
from collections import Counter
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))
IPV6_PREFIX = 64  # one customer of a provider has as many addresses as these bits leave


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """No number: no limit. `exempt` are networks whose addresses have the total alone: a proxy has one address for all
    of its clients.
    """

    total: int | None = None
    per_address: int | None = None
    exempt: tuple[Network, ...] = ()


def half_for_one_address(total: int) -> ConnectionLimits:
    """For a server that knows no proxies: none of them, and nobody else, takes all there is."""
    return ConnectionLimits(total, max(1, total // 2), exempt=LOOPBACK)


class OpenConnections:
    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits, self._total = limits, 0
        self._by_client: Counter[str] = Counter()

    def problem(self, address: str | None) -> str | None:
        """Why there is no room for one more connection from there."""
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
        """By what connections are counted together; None where they are not: Unix sockets, exempt networks."""
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
