"""Client addresses: normalised for the audit trail, and grouped by network to count attempts. No I/O."""

import ipaddress

UNKNOWN_NETWORK = "::"


def address_parse(value: object) -> str:
    """Return the normalised address, or "" if it is invalid: a proxy may pass words instead of an address."""
    address = _parsed(value)
    return "" if address is None else str(address)


def network_of(address: str) -> str:
    """Return the network for which attempts are counted: an IPv6 /64, because one host may own all its addresses."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return UNKNOWN_NETWORK if parsed is None else str(parsed)


def neighbourhood_of(address: str) -> tuple[str, str]:
    """Return the first and last address of the larger network that a provider gives to one or few customers."""
    parsed = ipaddress.ip_address(address)
    network = ipaddress.ip_network((parsed, 24 if parsed.version == 4 else 48), strict=False)
    return str(network[0]), str(network[-1])


def _parsed(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    text = str(value or "").partition("%")[0]  # a zone is local to the receiving machine, and of any length
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
