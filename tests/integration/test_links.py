"""The pages one-time links open, as their readers, their scanners and those who should not hold them meet them."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.test import Client
from django.utils import timezone

from controlplane.common.request_id import request_id_bound
from tenants.actor import SYSTEM
from tenants.models import AuditRecord, Member, OneTimeLink, Organisation, SignInAttempt, User
from tenants.services.members import member_invite, member_link, reset_link
from tenants.services.organisations import organisation_delete
from tenants.sign_in_limits import EMAIL_AND_ADDRESS_LIMIT
from tests.database.factories import PASSWORD, make_user
from tests.web.api import Api, make_organisation

pytestmark = pytest.mark.django_db
NEW = "a fine new password"
EMAIL = "ada@acme.example"
INVITATION = re.compile(r"http://localhost:8000(/invitation/[\w-]{43})")


def invited(email: str = EMAIL, role: str = "editor") -> str:
    return member_invite(actor=SYSTEM, organisation=make_organisation(), email=email, role=role)[1].path


def resetting(user: User) -> str:
    return reset_link(actor=SYSTEM, user=user).path


def choose(client: Client, path: str, new: str = NEW, again: str | None = None, **extra: Any) -> Any:
    return client.post(path, {"new": new, "again": new if again is None else again}, **extra)


def home(client: Client) -> str:
    return client.get("/").content.decode()


def test_an_invitation_says_who_invites_whom_into_what(client: Client) -> None:
    page = client.get(invited()).content.decode()
    for told in ("Acme invites you", EMAIL, "an editor", "change policies", "UTC"):
        assert told in page


def test_a_new_person_chooses_a_password_and_is_home(client: Client) -> None:
    path = invited()
    answer = choose(client, path)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert "Welcome. You are part of Acme now." in home(client)
    assert "Welcome." not in home(client)  # said once
    assert User.objects.get(email=EMAIL).check_password(NEW)
    assert Member.objects.get().has_joined


def test_an_invitation_made_through_rest_opens(operator: Api, client: Client) -> None:
    make_organisation()
    answer = operator.post("/orgs/acme/members", {"email": EMAIL, "role": "viewer"})
    found = INVITATION.fullmatch(json.loads(answer.content)["invitation_url"])
    assert found
    assert choose(client, found[1]).status_code == 302


def test_somebody_with_an_account_joins_with_the_password_they_have(client: Client) -> None:
    make_user(email=EMAIL)
    path = invited()
    assert client.post(path, {"new": PASSWORD})["Location"] == "/"
    assert "You are part of Acme now" in home(client)
    assert User.objects.get().check_password(PASSWORD)


def test_who_has_an_account_may_also_type_its_password_twice(client: Client) -> None:
    make_user(email=EMAIL)
    assert choose(client, invited(), PASSWORD).status_code == 302
    assert User.objects.get().check_password(PASSWORD)


def test_looking_spends_nothing_and_writes_nothing(client: Client) -> None:
    for path in (invited(), resetting(make_user())):
        before = AuditRecord.objects.count()
        for _ in range(3):
            assert client.get(path).status_code == 200
            assert client.head(path).status_code == 200
        assert AuditRecord.objects.count() == before
    assert OneTimeLink.objects.filter(used_at=None).count() == 2
    assert "luminet_session" not in client.cookies


def test_the_trail_says_from_where_and_in_which_request_a_link_was_used(client: Client) -> None:
    for path, verb in ((invited(), "member.join"), (resetting(make_user()), "password.reset")):
        with request_id_bound("r-7"):
            choose(Client(), path, REMOTE_ADDR="2001:DB8::7")
        record = AuditRecord.objects.latest("seq")
        assert (record.verb, record.address, record.request_id) == (verb, "2001:db8::7", "r-7")


def test_a_reset_sets_the_password_signs_in_and_ends_every_other_session(client: Client) -> None:
    user = make_user()
    elsewhere = Client()
    elsewhere.force_login(user)
    path = resetting(user)
    assert user.email in client.get(path).content.decode()
    assert choose(client, path)["Location"] == "/"
    assert "Your new password is set" in home(client)
    assert elsewhere.get("/").status_code == 302
    assert not User.objects.get().check_password(PASSWORD)


def test_who_is_signed_in_already_may_use_their_own_link(client: Client) -> None:
    user = make_user()
    client.force_login(user)
    assert choose(client, resetting(user))["Location"] == "/"
    assert client.get("/").status_code == 200


def made(purpose: str) -> str:
    return invited() if purpose == "invitation" else resetting(make_user())


def spent(purpose: str) -> str:
    path = made(purpose)
    OneTimeLink.objects.update(used_at=timezone.now())
    return path


def expired(purpose: str) -> str:
    path = made(purpose)
    OneTimeLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    return path


def replaced(purpose: str) -> str:
    path = made(purpose)
    if purpose == "invitation":
        member_link(actor=SYSTEM, member=Member.objects.get())
    else:
        resetting(User.objects.get())
    return path


def unknown(purpose: str) -> str:
    return f"/{purpose}/{'x' * 43}"


def of_the_other_kind(purpose: str) -> str:
    path = made("reset" if purpose == "invitation" else "invitation")
    return f"/{purpose}/{path.rsplit('/', 1)[1]}"


@pytest.mark.parametrize("purpose", ["invitation", "reset"])
@pytest.mark.parametrize("broken", [spent, expired, replaced, unknown, of_the_other_kind])
def test_every_link_that_does_not_work_leads_to_the_same_page(
    client: Client, purpose: str, broken: Callable[[str], str]
) -> None:
    path = broken(purpose)
    before = User.objects.count()
    for answer in (client.get(path), choose(client, path), client.post(path, {"new": PASSWORD})):
        page = answer.content.decode()
        assert answer.status_code == 404
        assert "This link does not work, or not any more" in page
        assert "Go to sign-in" in page
        assert path.rsplit("/", 1)[1] not in page
    assert client.get(path).content == client.get(unknown(purpose)).content
    assert User.objects.count() == before
    assert not User.objects.filter(email=EMAIL).exists()


def test_an_invitation_to_an_organisation_that_is_gone_does_not_work(client: Client) -> None:
    path = invited()
    organisation_delete(actor=SYSTEM, organisation=Organisation.objects.get(), expected=None)
    assert client.get(path).status_code == 404


def test_a_reset_for_a_closed_account_does_not_work(client: Client) -> None:
    path = resetting(make_user(is_active=False))
    assert client.get(path).status_code == 404
    assert choose(client, path).status_code == 404
    assert User.objects.get().check_password(PASSWORD)


def test_a_link_works_once(client: Client) -> None:
    for path in (invited(), resetting(make_user())):
        assert choose(client, path).status_code == 302
        client.post("/sign-out")
        assert choose(Client(), path, "yet another password").status_code == 404


@pytest.mark.parametrize(
    ("new", "again", "told"),
    [
        ("short", "short", "at least 12 characters"),
        ("password1234", "password1234", "too common"),
        (EMAIL, EMAIL, "too similar"),
        (NEW, "another one, not that", "differs from the new password above"),
        ("x" * 300, "x" * 300, "256 is the most"),
        ("x" * 5000, "x" * 5000, "at most 1024 characters"),
        ("nul\0in a password", "nul\0in a password", "Null characters are not allowed"),
        ("", "", "This field is required"),
    ],
)
def test_a_bad_password_is_said_at_its_field_and_the_link_stays(
    client: Client, new: str, again: str, told: str
) -> None:
    user = make_user(email=EMAIL)
    for path in (resetting(user), invited("new-" + EMAIL)):
        answer = choose(client, path, new, again)
        page = answer.content.decode()
        assert answer.status_code == 422
        assert told in page
        assert 'aria-invalid="true"' in page
        assert not re.search(r'type="password"[^>]*value=', page)
        assert client.get(path).status_code == 200
    assert user.check_password(PASSWORD)
    assert User.objects.count() == 1


CSRF = re.compile(r'name="csrfmiddlewaretoken" value="\w+"')


def answered(path: str, new: str, again: str, hashes: list[str]) -> tuple[Any, ...]:
    """All that somebody with the link, and a clock, can learn by looking and by sending this."""
    client = Client()
    SignInAttempt.objects.all().delete()
    looked = client.get(path)
    hashes.clear()
    sent = choose(client, path, new, again)
    pages = [CSRF.sub("", one.content.decode()) for one in (looked, sent)]
    return looked.status_code, sent.status_code, *pages, SignInAttempt.objects.count(), len(hashes)


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each password hashed: what takes the time."""
    made: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, password: str, salt: str) -> str:
        made.append(password)
        return encode(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    return made


@pytest.mark.parametrize(
    ("new", "again"),
    [
        ("not this one", ""),
        (NEW, ""),
        ("x" * 300, ""),
        ("short", "short"),
        (EMAIL, EMAIL),
        (NEW, "another one, not that"),
        ("", ""),
    ],
)
def test_an_invitation_tells_nobody_whether_its_address_has_an_account(new: str, again: str, hashes: list[str]) -> None:
    path = invited()
    without = answered(path, new, again, hashes)
    make_user(email=EMAIL)
    assert answered(path, new, again, hashes) == without
    assert without[1] == 422


def test_a_password_typed_once_and_wrong_is_answered_with_both_ways_to_join(client: Client) -> None:
    page = client.post(invited(), {"new": NEW}).content.decode()
    assert "No account here fits this password." in page
    assert "If you are new, type the one you choose in both fields;" in page


@pytest.mark.parametrize("has_account", [True, False], ids=["account", "no account"])
def test_a_wrong_password_does_not_join_and_is_limited_like_sign_in(client: Client, has_account: bool) -> None:
    if has_account:
        make_user(email=EMAIL)
    path = invited()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        assert client.post(path, {"new": "not this one"}).status_code == 422
    held_back = choose(client, path, PASSWORD)
    assert held_back.status_code == 429
    assert 0 < int(held_back["Retry-After"]) <= 900
    assert "Try again in 15 minutes" in held_back.content.decode()
    assert SignInAttempt.objects.count() == EMAIL_AND_ADDRESS_LIMIT
    assert not Member.objects.get().has_joined


def test_guesses_typed_twice_are_counted_too(client: Client) -> None:
    make_user(email=EMAIL)
    path = invited()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        assert choose(client, path, NEW).status_code == 422
    assert choose(client, path, PASSWORD).status_code == 429
    assert User.objects.get().check_password(PASSWORD)


def test_guesses_here_and_at_the_sign_in_page_are_counted_together(client: Client) -> None:
    make_user(email=EMAIL)
    path = invited()
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        client.post("/sign-in", {"email": EMAIL, "password": "wrong"})
    assert client.post(path, {"new": PASSWORD}).status_code == 429


def test_what_succeeds_at_an_invitation_counts_as_no_attempt(client: Client) -> None:
    choose(client, invited())
    assert not SignInAttempt.objects.exists()


def test_who_is_signed_in_as_somebody_else_is_told_and_offered_a_way(customer_client: Client) -> None:
    for path in (invited(), resetting(make_user(email="bob@acme.example"))):
        page = customer_client.get(path).content.decode()
        assert "You are signed in as somebody else" in page
        assert "someone@acme.example" in page
        assert f'name="next" value="{path}"' in page
        assert choose(customer_client, path).status_code == 409
    assert not User.objects.filter(email=EMAIL).exists()
    assert customer_client.post("/sign-out", {"next": path})["Location"] == path
    assert customer_client.get(path).status_code == 200


def test_the_secret_in_the_address_reaches_neither_caches_nor_other_pages(client: Client) -> None:
    path = invited()
    for answer in (client.get(path), choose(client, path, "short"), client.get(unknown("reset")), choose(client, path)):
        assert answer["Referrer-Policy"] == "strict-origin"
        assert "no-store" in answer["Cache-Control"]
    assert client.get("/sign-in")["Referrer-Policy"] == "same-origin"


def test_the_pages_load_nothing_from_elsewhere_and_need_no_script(client: Client) -> None:
    for path in (invited(), resetting(make_user()), unknown("invitation")):
        page = client.get(path).content.decode()
        assert "<script" not in page
        assert not re.search(r"(src|href|action)=\"(https?:)?//", page)


def test_a_forged_form_is_refused() -> None:
    client = Client(enforce_csrf_checks=True)
    path = invited()
    assert choose(client, path).status_code == 403
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "token", ["%00", "..%2f..", "%ff%fe", "🐙", "x" * 3000, "<script>alert(1)</script>", "'--", "%"]
)
def test_a_nonsense_link_is_only_a_link_that_does_not_work(client: Client, token: str) -> None:
    for purpose in ("invitation", "reset"):
        answer = client.get(f"/{purpose}/{token}")
        assert answer.status_code == 404
        assert "<script>alert" not in answer.content.decode()


def test_an_organisations_name_is_shown_as_text(client: Client) -> None:
    path = invited()
    Organisation.objects.update(name="<b>Acme</b> & sons")
    assert "&lt;b&gt;Acme&lt;/b&gt; &amp; sons invites you" in client.get(path).content.decode()
    choose(client, path)
    assert "&lt;b&gt;Acme&lt;/b&gt; &amp; sons now" in home(client)
