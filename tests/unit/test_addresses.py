import pytest

from tenants.addresses import address_parse, neighbourhood_of, network_of
from tests.support.case_names import case_name


def test_an_address_is_kept_exactly_and_what_is_none_is_not_kept(subtests: pytest.Subtests) -> None:
    cases: list[tuple[object, str]] = [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%a-zone-of-any-length-" + "x" * 100, "fe80::1"),
        ("unknown", ""),
        ("192.0.2.7:4711", ""),
        ("x" * 5000, ""),
        ("", ""),
        (None, ""),
    ]
    for given, kept in cases:
        with subtests.test(msg=case_name(given, kept)):
            assert address_parse(given) == kept
            assert len(kept) <= 45


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", "::"),
    ],
)
def test_attempts_are_counted_for_a_network(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("address", "around"),
    [
        ("192.0.2.7", ("192.0.2.0", "192.0.2.255")),
        ("2001:db8:1:2::", ("2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff")),
        ("::", ("::", "::ffff:ffff:ffff:ffff:ffff")),
    ],
)
def test_neighbourhood_is_what_one_customer_of_a_provider_has(address: str, around: tuple[str, str]) -> None:
    assert neighbourhood_of(address) == around
