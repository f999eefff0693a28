"""Who reads metrics: the bearer of the token; without one, this machine on its own behalf. Nobody else."""

import pytest

from engine_agent.http.scraping import Scrapers

OPEN, CLOSED = Scrapers.read({}), Scrapers.read({"LUMINET_METRICS_TOKEN": " abc "})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
def test_without_a_token_this_machine_reads_them(host: str) -> None:
    assert OPEN.may_read({}, host)
    assert OPEN.may_read({"authorization": "Bearer sk-of-somebody"}, host)


def test_without_a_token_no_other_does(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = ["10.0.0.7", "172.18.0.1", "0.0.0.0", "::", "fe80::1%eth0", "localhost", "", None]
    for host in cases:
        with subtests.test(msg=repr(host)):
            assert not OPEN.may_read({}, host)


@pytest.mark.parametrize("name", ["x-forwarded-for", "x-forwarded-proto", "forwarded", "via"])
def test_who_comes_by_a_proxy_on_this_machine_is_not_this_machine(name: str) -> None:
    assert not OPEN.may_read({name: "for=127.0.0.1"}, "127.0.0.1")


def test_with_a_token_its_bearer_reads_them_from_anywhere_and_nobody_without_it_from_here() -> None:
    assert CLOSED.may_read({"authorization": "Bearer abc"}, "203.0.113.9")
    assert CLOSED.may_read({"authorization": "Bearer abc", "via": "1.1 proxy"}, None)
    assert not CLOSED.may_read({}, "127.0.0.1")


def test_what_is_not_the_token_is_not_taken_for_it(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "abc", "Bearer", "Bearer ", "bearer abc", "Bearer abcd", "Bearer é", "Bearer \udcff"]
    for offered in cases:
        with subtests.test(msg=ascii(offered)):  # as it comes from another process, in UTF-8
            assert not CLOSED.may_read({"authorization": offered}, "127.0.0.1")


@pytest.mark.parametrize("nothing", ["", "  "])
def test_an_empty_token_is_none(nothing: str) -> None:
    assert Scrapers.read({"LUMINET_METRICS_TOKEN": nothing}).token is None


def test_the_token_is_not_printed_by_accident() -> None:
    assert "abc" not in repr(CLOSED)
