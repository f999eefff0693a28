"""Where requests come from: an address as the trail keeps it, and the network that attempts are counted for. Pure."""

import ipaddress

UNKNOWN_NETWORK = "::"


def address_parse(value: object) -> str:
    """In its one spelling, or nothing: what stands in front of us may hand over words instead of an address."""
    address = _parsed(value)
    return "" if address is None else str(address)


def network_of(address: str) -> str:
    """Whom attempts are counted for. An IPv6 network is one: a single host may own all addresses of it."""
    found = _parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False).network_address)
    return UNKNOWN_NETWORK if found is None else str(found)


def neighbourhood_of(address: str) -> tuple[str, str]:
    """First and last address around a network: what one provider hands out to one customer, or to few."""
    found = ipaddress.ip_address(address)
    around = ipaddress.ip_network((found, 24 if found.version == 4 else 48), strict=False)
    return str(around[0]), str(around[-1])


def _parsed(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    text = str(value or "").partition("%")[0]  # a zone is the receiving machine's own word, and of any length
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
