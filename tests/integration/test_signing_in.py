from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from controlplane.common.request_id import request_id_bound
from tenants.actor import SYSTEM
from tenants.errors import EmailTaken, InvalidEmail, SignInRefused, WeakPassword
from tenants.models import AuditRecord, SignInAttempt, User
from tenants.services import people
from tenants.services.housekeeping import housekeeping
from tenants.sign_in_limits import EMAIL_AND_ADDRESS_LIMIT, WINDOW
from tests.database.factories import PASSWORD, make_operator, make_user
from tests.web.api import Api, make_operator_token

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def sign_in(client: Client, email: str = "someone@acme.example", password: str = PASSWORD, **extra: Any) -> Any:
    return client.post("/sign-in", {"email": email, "password": password, **extra})


def test_the_right_password_opens_the_home_page(client: Client) -> None:
    make_user()
    assert sign_in(client)["Location"] == "/"
    assert "Your cache hits will be counted here" in client.get("/").content.decode()


def test_an_address_is_the_same_in_capitals_and_with_spaces(client: Client) -> None:
    make_user()
    assert sign_in(client, email="  SomeOne@Acme.Example ").status_code == 302


def test_a_wrong_password_an_unknown_address_and_a_closed_account_are_told_alike(client: Client) -> None:
    make_user()
    make_user(email="closed@acme.example", is_active=False)
    answers = [
        sign_in(client, password="wrong"),
        sign_in(client, email="nobody@acme.example"),
        sign_in(client, email="closed@acme.example"),
    ]
    assert [answer.status_code for answer in answers] == [422, 422, 422]
    for answer in answers:
        assert "do not match an active account" in answer.content.decode()


def test_what_was_typed_stays_except_the_password(client: Client) -> None:
    page = sign_in(client, email="typed@acme.example", password="typed-password").content.decode()
    assert 'value="typed@acme.example"' in page
    assert "typed-password" not in page


def test_too_many_attempts_are_held_back_even_with_the_right_password(client: Client) -> None:
    make_user()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        sign_in(client, password="wrong")
    answer = sign_in(client)
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= WINDOW.total_seconds()
    assert "Try again in 15 minutes" in answer.content.decode()


def test_an_attacker_elsewhere_does_not_lock_the_owner_out(client: Client) -> None:
    make_user()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        client.post("/sign-in", {"email": "someone@acme.example", "password": "x"}, REMOTE_ADDR="203.0.113.9")
    assert sign_in(client).status_code == 302


def test_attempts_are_forgotten_after_the_window_and_after_success() -> None:
    make_user()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT - 1):
        with pytest.raises(SignInRefused):
            people.sign_in(email="someone@acme.example", password="x", address="192.0.2.1", now=NOW)
    people.sign_in(email="someone@acme.example", password=PASSWORD, address="192.0.2.1", now=NOW)
    assert SignInAttempt.objects.count() == EMAIL_AND_ADDRESS_LIMIT - 1
    assert housekeeping(now=NOW + WINDOW + timedelta(seconds=1)) == EMAIL_AND_ADDRESS_LIMIT - 1


def test_sessions_that_have_ended_are_forgotten(customer_client: Client) -> None:
    assert housekeeping(now=datetime.now(UTC)) == 0
    assert housekeeping(now=datetime.now(UTC) + timedelta(hours=13)) == 1
    assert customer_client.get("/").status_code == 302


def test_attempts_hold_no_address_in_the_clear() -> None:
    with pytest.raises(SignInRefused):
        people.sign_in(email="someone@acme.example", password="x", address="192.0.2.1", now=NOW)
    assert b"someone" not in bytes(SignInAttempt.objects.get().email_hash)


@pytest.mark.parametrize(
    "value", ["", "\0", "x" * 5000, "<script>alert(1)</script>", "🐙" * 200, "'; drop table users"]
)
def test_nonsense_is_refused_and_shown_escaped(client: Client, value: str) -> None:
    for body in ({"email": value, "password": "x"}, {"email": "a@b.example", "password": value}, {}):
        answer = client.post("/sign-in", body)
        assert answer.status_code == 422
        assert "<script>alert" not in answer.content.decode()


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "javascript:alert(1)", "\\\\evil.example", "foo", "sign-out", "?x"],
)
def test_the_way_back_never_leads_to_another_site(client: Client, target: str) -> None:
    make_user()
    assert sign_in(client, next=target)["Location"] == "/"


@pytest.mark.parametrize(
    ("shown", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),  # one host owns all of its /64
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("junk", "::"),
        ("", "::"),
    ],
)
def test_attempts_are_counted_by_the_network_they_come_from(client: Client, shown: str, counted: str) -> None:
    client.post("/sign-in", {"email": "a@b.example", "password": "x"}, REMOTE_ADDR=shown)
    assert SignInAttempt.objects.get().address == counted


def test_the_way_back_leads_to_the_page_one_came_for(client: Client) -> None:
    make_user()
    assert client.get("/account/password")["Location"] == "/sign-in?next=/account/password"
    assert sign_in(client, next="/account/password")["Location"] == "/account/password"


def test_sign_in_without_token_is_asked_again() -> None:
    answer = sign_in(Client(enforce_csrf_checks=True))
    assert answer.status_code == 403
    assert 'name="password"' in answer.content.decode()
    assert "_auth_user_id" not in answer.wsgi_request.session


def test_signing_out_takes_a_post_and_ends_the_session(customer_client: Client) -> None:
    assert customer_client.get("/sign-out").status_code == 405
    assert customer_client.post("/sign-out")["Location"] == "/sign-in"
    assert customer_client.get("/").status_code == 302


TO_ANOTHER = {"current": PASSWORD, "new": "another fine password", "again": "another fine password"}


def change(client: Client, current: str, new: str, again: str) -> Any:
    return client.post("/account/password", {"current": current, "new": new, "again": again})


def test_a_changed_password_ends_every_other_session(customer_client: Client) -> None:
    elsewhere = Client()
    elsewhere.force_login(User.objects.get())
    assert change(customer_client, PASSWORD, "another fine password", "another fine password").status_code == 302
    assert customer_client.get("/account/password?changed").status_code == 200
    assert elsewhere.get("/").status_code == 302
    assert sign_in(Client()).status_code == 422
    assert sign_in(Client(), password="another fine password").status_code == 302


@pytest.mark.parametrize(
    ("current", "new", "again", "told"),
    [
        ("wrong", "another fine password", "another fine password", "not your current password"),
        (PASSWORD, "short", "short", "at least 12 characters"),
        (PASSWORD, "password1234", "password1234", "too common"),
        (PASSWORD, "someone@acme.example", "someone@acme.example", "too similar"),
        (PASSWORD, "another fine password", "and yet another one", "differs"),
        (PASSWORD, "x" * 300, "x" * 300, "256 is the most"),
        ("", "", "", "This field is required"),
    ],
)
def test_a_bad_password_change_says_why_and_changes_nothing(
    customer_client: Client, current: str, new: str, again: str, told: str
) -> None:
    answer = change(customer_client, current, new, again)
    assert answer.status_code == 422
    assert told in answer.content.decode()
    assert User.objects.get().check_password(PASSWORD)


def test_the_support_site_has_no_sign_in_of_its_own(client: Client) -> None:
    answer = client.get("/admin/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/sign-in?next=/admin/")
    assert client.post("/admin/login/", {"username": "x", "password": "y"})["Location"].startswith("/sign-in")


def test_the_support_site_is_for_operators(operator_client: Client, customer_client: Client) -> None:
    assert operator_client.get("/admin/tenants/user/").status_code == 200
    assert customer_client.get("/admin/tenants/user/", follow=True).status_code == 404


def test_an_account_switched_off_or_on_is_in_the_trail_with_who_from_where_and_in_which_request(
    operator_client: Client,
) -> None:
    user = make_user(email="leaver@acme.example")
    page = f"/admin/tenants/user/{user.pk}/change/"
    for fields in ({}, {}, {"is_active": "on"}):  # switched off twice: the second time nothing happens
        with request_id_bound("r-7"):
            assert operator_client.post(page, fields, REMOTE_ADDR="2001:db8::7").status_code == 302
    records = AuditRecord.objects.order_by("seq")
    assert [(one.verb, one.before, one.after) for one in records] == [
        ("account.close", '{"is_active":true}', '{"is_active":false}'),
        ("account.open", '{"is_active":false}', '{"is_active":true}'),
    ]
    for one in records:
        assert (one.actor_kind, one.actor_name, one.target) == ("operator", "operator@luminet.example", user.email)
        assert (one.address, one.request_id) == ("2001:db8::7", "r-7")


def test_a_changed_password_is_in_the_trail_with_from_where_and_in_which_request(customer_client: Client) -> None:
    with request_id_bound("r-7"):
        customer_client.post("/account/password", TO_ANOTHER, REMOTE_ADDR="192.0.2.7")
    record = AuditRecord.objects.get()
    assert (record.verb, record.actor_kind, record.actor_name) == ("password.change", "member", "someone@acme.example")
    assert (record.address, record.request_id) == ("192.0.2.7", "r-7")


def test_a_closed_account_has_no_use_for_its_links_and_tokens_until_it_is_opened(operator_client: Client) -> None:
    user = make_user(email="second@luminet.example", is_operator=True)
    api = Api(make_operator_token(user), Client())
    assert not people.account_close(actor=SYSTEM, user=user).is_active
    assert api.get("/whoami").status_code == 401
    assert sign_in(Client(), email=user.email).status_code == 422
    assert people.account_open(actor=SYSTEM, user=user).is_active
    assert api.get("/whoami").status_code == 200


def test_the_support_site_can_close_an_account_and_nothing_more(operator_client: Client) -> None:
    user = make_user(email="leaver@acme.example")
    page = f"/admin/tenants/user/{user.pk}/change/"
    operator_client.post(page, {"email": "other@acme.example", "is_operator": "on"})
    user.refresh_from_db()
    assert (user.email, user.is_operator, user.is_active) == ("leaver@acme.example", False, False)
    assert operator_client.get("/admin/tenants/user/add/").status_code == 403
    assert operator_client.post(f"/admin/tenants/user/{user.pk}/delete/").status_code == 403


def test_an_operator_has_an_address_a_good_password_and_one_account() -> None:
    people.operator_create(email="Ops@Luminet.Example", password=PASSWORD)
    with pytest.raises(EmailTaken):
        people.operator_create(email="ops@luminet.example", password=PASSWORD)
    with pytest.raises(InvalidEmail):
        people.operator_create(email="ops", password=PASSWORD)
    with pytest.raises(WeakPassword):
        people.operator_create(email="two@luminet.example", password="short")
    assert [user.email for user in User.objects.all()] == ["ops@luminet.example"]


def test_pages_can_be_asked_for_without_their_body(operator_client: Client) -> None:
    assert operator_client.head("/").status_code == 200


def test_what_people_see_depends_on_who_they_are(operator_client: Client, customer_client: Client) -> None:
    assert "Parts of the control plane" in operator_client.get("/").content.decode()
    assert "Your cache hits" in customer_client.get("/").content.decode()
    assert operator_client.get("/overview/parts").status_code == 200
    assert customer_client.get("/overview/parts").status_code == 404


def test_a_closed_account_loses_its_open_session(operator_client: Client) -> None:
    User.objects.update(is_active=False)
    assert operator_client.get("/").status_code == 302


def test_everyone_is_sent_to_sign_in_first(client: Client) -> None:
    assert b"Your session has ended" in client.get("/overview/parts").content  # never the sign-in page in a panel
    for path in ("/", "/account/password"):
        assert client.get(path)["Location"].startswith("/sign-in?next=")


def test_the_theme_is_remembered_and_nonsense_is_not(client: Client) -> None:
    client.post("/account/theme", {"theme": "dark", "next": "/sign-in"})
    assert 'data-theme="dark"' in client.get("/sign-in").content.decode()
    client.post("/account/theme", {"theme": '"><script>'})
    assert 'data-theme="dark"' in client.get("/sign-in").content.decode()
    client.cookies["luminet_theme"] = '"><script>'
    assert 'data-theme="system"' in client.get("/sign-in").content.decode()


def test_an_operator_is_made_by_name() -> None:
    assert make_operator().has_perm("anything")
    assert not make_user().has_perm("anything")
