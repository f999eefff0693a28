"""Where webhooks may lead, and how they are signed. Nothing is sent here."""

import hashlib
import hmac
import socket
from typing import Any

import pytest

from controlplane.alerts.webhooks import (
    NotAllowed,
    NotTaken,
    Policy,
    Target,
    addresses_allowed,
    signature,
    target_checked,
)
from tenants.errors import InvalidFields
from tests.support.case_names import case_name

CUSTOMER, OPERATOR = Policy(by_operator=False), Policy(by_operator=True)
PRIVATE = ("10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "fd00::1")
NOT_PUBLIC = ("192.0.0.8", "192.88.99.1", "168.63.129.16", "64:ff9b:1::1", "fec0::1")
INSIDE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::"),
)


def means(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Whatever name is asked for has these addresses."""

    def answer(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def _nothing(*_: Any, **__: Any) -> list[Any]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hooks.example.com", Target(True, "hooks.example.com", 443, "/")),
        ("https://hooks.example.com:8443/a/b?c=d", Target(True, "hooks.example.com", 8443, "/a/b?c=d")),
        ("https://[2606:4700::1111]/x", Target(True, "2606:4700::1111", 443, "/x")),
        ("https://HOOKS.example.com./x", Target(True, "hooks.example.com", 443, "/x")),
    ],
)
def test_public_addresses_may_be_told_by_tls(url: str, target: Target) -> None:
    assert target_checked(url, CUSTOMER) == target


def test_what_may_not_be_told_is_refused_by_its_field(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("http://hooks.example.com/", "ftp://hooks.example.com/", "https://", "hooks.example.com", "https:///x", ""),
        *("https://kim:secret@hooks.example.com/", "https://hooks.example.com/#top", "https://hooks.example.com:0/"),
        *("https://hooks.example.com:99999/", "https://hooks.example.com/\r\nHost: other", "https://höhle.example/"),
        *("https://localhost/", "https://localhost./", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/"),
        "https://hooks.example.com/" + "x" * 500,
    ]
    for url in cases:
        with subtests.test(msg=case_name(url)):
            with pytest.raises(InvalidFields) as refused:
                target_checked(url, CUSTOMER)
            assert [one.field for one in refused.value.problems] == ["webhook_url"]


@pytest.mark.parametrize("address", [*PRIVATE, *NOT_PUBLIC, *INSIDE])
def test_a_customers_name_that_means_an_address_inside_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    means(monkeypatch, address)
    with pytest.raises(NotAllowed) as refused:
        addresses_allowed(target_checked("https://hooks.example.com/", CUSTOMER), CUSTOMER)
    assert address not in str(refused.value)


def test_one_address_inside_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    means(monkeypatch, "1.1.1.1", "127.0.0.1")
    with pytest.raises(NotAllowed):
        addresses_allowed(target_checked("https://hooks.example.com/", CUSTOMER), CUSTOMER)


def test_what_is_connected_to_is_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    means(monkeypatch, "1.1.1.1", "1.0.0.1", "1.1.1.1")
    assert addresses_allowed(target_checked("https://one.example/", CUSTOMER), CUSTOMER) == ["1.1.1.1", "1.0.0.1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_rule_of_operators_may_lead_to_private_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    means(monkeypatch, address)
    assert addresses_allowed(target_checked("https://pager.internal/", OPERATOR), OPERATOR) == [address]


@pytest.mark.parametrize("address", INSIDE)
def test_not_even_operators_reach_this_machine_by_a_name_alone(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    means(monkeypatch, address)
    with pytest.raises(NotAllowed):
        addresses_allowed(target_checked("https://pager.internal/", OPERATOR), OPERATOR)


@pytest.mark.parametrize("named", ["127.0.0.1", "127.0.0.1:9000"])
def test_a_host_that_operators_named_may_be_anywhere_also_without_tls(named: str) -> None:
    policy = Policy(by_operator=True, hosts=(named,))
    target = target_checked("http://127.0.0.1:9000/hook", policy)
    assert addresses_allowed(target, policy) == ["127.0.0.1"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/hook", "https://127.0.0.1:9000/hook"])
def test_a_host_that_operators_named_is_open_to_no_rule_of_a_customer(url: str) -> None:
    with pytest.raises(InvalidFields):
        target_checked(url, Policy(by_operator=False, hosts=("127.0.0.1", "127.0.0.1:9000")))


def test_a_customers_rule_does_not_learn_which_names_mean_something_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_checked("https://payroll.internal/", CUSTOMER)
    means(monkeypatch, "10.0.0.1")
    with pytest.raises(NotAllowed) as inside:
        addresses_allowed(target, CUSTOMER)
    monkeypatch.setattr(socket, "getaddrinfo", _nothing)
    with pytest.raises(NotTaken) as nowhere:
        addresses_allowed(target, CUSTOMER)
    assert str(inside.value) == str(nowhere.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9001/", "http://127.0.0.2:9000/", "https://localhost:9000/"])
def test_a_host_named_with_its_port_opens_nothing_else(url: str) -> None:
    with pytest.raises(InvalidFields):
        target_checked(url, Policy(by_operator=True, hosts=("127.0.0.1:9000",)))


def test_a_name_without_an_address_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _nothing)
    with pytest.raises(NotTaken):
        addresses_allowed(target_checked("https://nowhere.example/", CUSTOMER), CUSTOMER)


def test_the_signature_is_over_time_and_body() -> None:
    wanted = hmac.new(b"lmw_x", b'1700000000.{"a":1}', hashlib.sha256).hexdigest()
    assert signature("lmw_x", 1_700_000_000, b'{"a":1}') == f"v1={wanted}"
    others = {
        signature(*one) for one in (("lmw_y", 1, b"b"), ("lmw_x", 2, b"b"), ("lmw_x", 1, b"c"), ("lmw_x", 1, b"b"))
    }
    assert len(others) == 4
