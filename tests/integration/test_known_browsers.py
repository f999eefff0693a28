"""Guessing is slowed and locks no owner out: each network has its own limit, and each browser an account knows."""

from collections.abc import Iterable
from datetime import timedelta
from http.cookies import Morsel

import pytest
from django.core.signing import TimestampSigner
from django.test import Client
from django.utils import timezone

from tenants.actor import SYSTEM
from tenants.known_devices import LASTS, device_issue, device_known, device_name
from tenants.models import SignInAttempt
from tenants.services import housekeeping as sweeps
from tenants.services.housekeeping import housekeeping
from tenants.services.members import reset_link
from tenants.sign_in_limits import DEVICE_LIMIT, EMAIL_AND_ADDRESS_LIMIT, WINDOW
from tests.database.factories import PASSWORD, make_user

pytestmark = pytest.mark.django_db
OWNER = "someone@acme.example"
HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"
ANOTHER_PASSWORD = "another fine password"
ATTACKERS = [f"203.0.113.{number}" for number in range(1, 7)]


def sign_in(client: Client, password: str = PASSWORD, *, address: str = HOME, email: str = OWNER) -> int:
    form = {"email": email, "password": password}
    status: int = client.post("/sign-in", form, REMOTE_ADDR=address).status_code
    return status


def known_browser() -> Client:
    """One the owner has signed in with, and out again."""
    client = Client()
    assert sign_in(client) == 302
    client.post("/sign-out")
    return client


def guess(addresses: Iterable[str], *, times: int = EMAIL_AND_ADDRESS_LIMIT) -> list[int]:
    return [sign_in(Client(), "wrong", address=address) for address in addresses for _ in range(times)]


def cookie(client: Client, email: str = OWNER) -> "Morsel[str]":
    return client.cookies[f"luminet_device_{device_name(email)}"]


def test_attack_from_six_networks_locks_no_owner_out() -> None:
    make_user()
    browser = known_browser()
    assert guess(ATTACKERS) == [422] * 30
    assert sign_in(browser, address=ATTACKERS[0]) == 302, "a known browser, wherever it is"
    assert sign_in(Client(), address=ELSEWHERE) == 302, "an unknown one, in a network that has not guessed"


def test_owner_of_a_new_browser_may_mistype_under_attack() -> None:
    make_user()
    guess(ATTACKERS)
    browser = Client()
    assert [sign_in(browser, word, address=ELSEWHERE) for word in ("wrong", PASSWORD)] == [422, 302]


def test_one_network_is_stopped_at_the_sixth_try() -> None:
    make_user()
    assert guess([HOME], times=6) == [422] * 5 + [429]
    assert sign_in(Client(), address=HOME) == 429


@pytest.mark.parametrize("network", ["2001:db8:1:2::", "2001:db8:ffff:1::"])
def test_one_ipv6_network_is_stopped_whatever_its_addresses(network: str) -> None:
    make_user()
    assert guess((f"{network}{number:x}" for number in range(1, 7)), times=1) == [422] * 5 + [429]


def test_distributed_guessing_gets_fewer_tries_a_network() -> None:
    make_user()
    guess(ATTACKERS)
    fresh = [f"198.18.{number}.1" for number in range(35)]
    assert guess(fresh[:1], times=3) == [422, 422, 429]
    assert guess(fresh[1:], times=2) == [422] * 68, "100 failures of 41 networks"
    assert guess(["100.64.0.1", "100.64.0.2", "100.64.1.1"], times=1) == [422, 429, 422], "one try a neighbourhood"
    assert sign_in(Client(), address=ELSEWHERE) == 302


def test_known_browser_is_stopped_at_its_own_sixth_try() -> None:
    make_user()
    browser = known_browser()
    assert [sign_in(browser, "wrong") for _ in range(DEVICE_LIMIT + 1)] == [422] * 5 + [429]
    assert sign_in(Client()) == 302, "what it failed counts against no other browser"


def test_crowded_network_does_not_stop_a_known_browser() -> None:
    make_user()
    browser = known_browser()
    for number in range(51):
        sign_in(Client(), "wrong", email=f"person{number}@acme.example")
    assert (sign_in(Client()), sign_in(browser)) == (429, 302)


def test_device_cookie_is_kept_from_scripts_and_other_pages(client: Client) -> None:
    make_user()
    assert client.post("/sign-in", {"email": OWNER, "password": PASSWORD}, secure=True).status_code == 302
    kept = cookie(client)
    assert (kept["path"], kept["httponly"], kept["secure"], kept["samesite"]) == ("/sign-in", True, True, "Strict")
    assert kept["max-age"] == int(LASTS.total_seconds())
    assert OWNER not in f"{kept.key}{kept.value}"


def test_failed_sign_in_makes_no_browser_known(client: Client) -> None:
    make_user()
    sign_in(client, "wrong")
    assert not any(name.startswith("luminet_device") for name in client.cookies)


def test_every_sign_in_rotates_the_device_cookie() -> None:
    make_user()
    browser = known_browser()
    before = cookie(browser).value
    assert sign_in(browser) == 302
    assert cookie(browser).value != before


def test_two_accounts_in_one_browser_are_both_known(client: Client) -> None:
    make_user()
    make_user(email="other@acme.example")
    for email in (OWNER, "other@acme.example"):
        assert sign_in(client, email=email) == 302
        client.post("/sign-out")
    guess([HOME])
    assert sign_in(client) == 302


def test_changed_password_makes_other_browsers_unknown() -> None:
    make_user()
    here, other = known_browser(), known_browser()
    word = cookie(other).value
    sign_in(here)
    change = {"current": PASSWORD, "new": ANOTHER_PASSWORD, "again": ANOTHER_PASSWORD}
    assert here.post("/account/password", change).status_code == 302
    assert not device_known(OWNER, word)
    assert device_known(OWNER, cookie(here).value), "this one proved who they are"


def test_reset_password_makes_other_browsers_unknown(client: Client) -> None:
    user = make_user()
    word = cookie(known_browser()).value
    link = reset_link(actor=SYSTEM, user=user)
    assert client.post(link.path, {"new": ANOTHER_PASSWORD, "again": ANOTHER_PASSWORD}).status_code == 302
    assert not device_known(OWNER, word)
    assert device_known(OWNER, cookie(client).value)


def test_device_word_is_good_for_its_own_account_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    user, other = make_user(), make_user(email="other@acme.example")
    word = device_issue(user)
    assert device_known(" SomeOne@Acme.example", word)
    assert not device_known(other.email, word)
    assert not device_known("nobody@acme.example", word)
    forged = TimestampSigner(key="another key", salt=f"known device\0{user.pk}\0{user.password}").sign("x" * 22)
    for wrong in (word[:-1], word + "x", forged, "x", "", "x:y:z", "\0", "ÿ" * 99):
        assert not device_known(OWNER, wrong)
    later = timezone.now() + LASTS + timedelta(minutes=1)
    monkeypatch.setattr("django.core.signing.time.time", later.timestamp)
    assert not device_known(OWNER, word)


def test_device_word_signs_nobody_in() -> None:
    make_user()
    browser = known_browser()
    assert browser.get("/account/password").status_code == 302
    assert sign_in(browser, "wrong") == 422


@pytest.mark.parametrize("email", [OWNER, "nobody@acme.example"])
def test_unknown_accounts_are_held_back_alike(email: str) -> None:
    make_user()
    answers = [
        Client().post("/sign-in", {"email": email, "password": "wrong"}, REMOTE_ADDR=address)
        for address in (*ATTACKERS, HOME)
        for _ in range(EMAIL_AND_ADDRESS_LIMIT + 1)
    ]
    assert [one.status_code for one in answers] == ([422] * 5 + [429]) * 6 + [422] * 2 + [429] * 4


def test_held_back_attempts_leave_nothing_behind() -> None:
    make_user()
    guess([HOME], times=40)
    assert SignInAttempt.objects.count() == EMAIL_AND_ADDRESS_LIMIT


def test_attempts_that_are_kept_have_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "ATTEMPTS_KEPT", 10)
    now = timezone.now()
    for number in range(25):
        SignInAttempt.objects.create(email_hash=b"x", address=HOME, at=now - timedelta(seconds=25 - number))
    newest = list(SignInAttempt.objects.order_by("-pk").values_list("pk", flat=True)[:10])
    assert housekeeping(now=now) == 15
    assert list(SignInAttempt.objects.order_by("-pk").values_list("pk", flat=True)) == newest
    assert (housekeeping(now=now), housekeeping(now=now + WINDOW + timedelta(seconds=1))) == (0, 10)
