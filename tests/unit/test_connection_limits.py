"""How many connections one address may have, and who is not counted by address."""

import ipaddress

import pytest

from engine_agent.http.connection_limits import LOOPBACK, ConnectionLimits, OpenConnections, half_for_one_address

PROXY = ipaddress.ip_network("10.0.0.0/24")
LIMITS = ConnectionLimits(total=4, per_address=2, exempt=(PROXY,))


def opened(*addresses: str | None, limits: ConnectionLimits = LIMITS) -> OpenConnections:
    connections = OpenConnections(limits)
    for address in addresses:
        connections.add(address)
    return connections


def test_third_connection_of_an_address_is_refused() -> None:
    connections = opened("192.0.2.1", "192.0.2.1")
    assert "One address may have 2" in str(connections.problem("192.0.2.1"))
    assert connections.problem("192.0.2.2") is None
    connections.remove("192.0.2.1")
    assert connections.problem("192.0.2.1") is None


def test_total_refuses_everybody() -> None:
    connections = opened("192.0.2.1", "192.0.2.2", "10.0.0.1", None)
    for address in ("192.0.2.3", "10.0.0.1", None):
        assert "More connections are open" in str(connections.problem(address))


@pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", None, ""])
def test_proxies_and_unix_sockets_have_the_total_alone(address: str | None) -> None:
    assert opened(address, address, address).problem(address) is None


@pytest.mark.parametrize(
    ("address", "other"),
    [("192.0.2.1", "::ffff:192.0.2.1"), ("2001:db8::1", "2001:db8::ffff:1"), ("2001:db8::1", "2001:DB8:0::2")],
)
def test_addresses_of_one_client_count_together(address: str, other: str) -> None:
    assert opened(address, address).problem(other) is not None
    assert opened(address, address).problem("2001:db8:0:1::1") is None


def test_half_is_for_one_address_and_all_for_this_machine() -> None:
    limits = half_for_one_address(5)
    assert (limits.total, limits.per_address, limits.exempt) == (5, 2, LOOPBACK)
    assert opened("127.0.0.1", "127.0.0.1", "::1", limits=limits).problem("127.0.0.1") is None


def test_nothing_is_kept_of_who_left() -> None:
    connections = opened("192.0.2.1")
    connections.remove("192.0.2.1")
    assert connections._by_client == {}
