"""Sessions in the database: what is stored of them, and that they work, end and are carried over an upgrade."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore as ClearStore
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from tenants.models import User
from tenants.sessions import SessionStore, stored_key
from tests.database.factories import PASSWORD, make_user
from tests.database.text import database_text

pytestmark = pytest.mark.django_db


def signed_in(client: Client) -> str:
    """The cookie of somebody who has typed their password."""
    make_user()
    assert client.post("/sign-in", {"email": "someone@acme.example", "password": PASSWORD}).status_code == 302
    return cookie_of(client)


def cookie_of(client: Client) -> str:
    value: str = client.cookies[settings.SESSION_COOKIE_NAME].value
    return value


def with_cookie(key: str) -> Client:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = key
    return client


def is_signed_in(key: str) -> bool:
    return with_cookie(key).get("/account/password").status_code == 200


def as_stored_before(key: str) -> None:
    """Put the session back as the version before stored it: under the key itself."""
    row = Session.objects.get(pk=stored_key(key))
    Session.objects.create(session_key=key, session_data=row.session_data, expire_date=row.expire_date)
    row.delete()


def test_session_cookie_is_nowhere_in_the_database(client: Client) -> None:
    key = signed_in(client)
    text = database_text()
    assert stored_key(key) in text
    assert key not in text


def test_stored_hash_opens_no_session(client: Client) -> None:
    key = signed_in(client)
    assert is_signed_in(key)
    assert not is_signed_in(stored_key(key))


def test_session_without_our_pepper_is_another_row(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    key = signed_in(client)
    monkeypatch.setattr("tenants.sessions.purpose_key", lambda secret, purpose: b"another key")
    assert not is_signed_in(key)


def test_sign_in_takes_a_new_key_and_sign_out_deletes_it(client: Client) -> None:
    store = SessionStore()
    store["theme"] = "dark"
    store.save()
    before = str(store.session_key)
    client.cookies[settings.SESSION_COOKIE_NAME] = before
    key = signed_in(client)
    assert [row.pk for row in Session.objects.all()] == [stored_key(key)]
    assert key != before
    client.post("/sign-out")
    assert not Session.objects.exists()
    assert not is_signed_in(key)


def test_sessions_that_expired_are_cleared(client: Client) -> None:
    key = signed_in(client)
    Session.objects.update(expire_date=timezone.now())
    assert not is_signed_in(key)
    call_command("clearsessions")
    assert not Session.objects.exists()


def test_session_of_the_version_before_stays_signed_in(client: Client) -> None:
    key = signed_in(client)
    as_stored_before(key)
    for _ in range(2):
        assert is_signed_in(key)
    assert [row.pk for row in Session.objects.all()] == [key], "the way back needs the row of before"


def test_session_of_the_version_before_can_be_saved_and_ended(client: Client) -> None:
    key = signed_in(client)
    as_stored_before(key)
    expires = timezone.now() + timedelta(hours=1)
    Session.objects.update(expire_date=expires)
    store = SessionStore(key)
    store["note"] = "saved"
    store.save()
    assert SessionStore(key)["note"] == ClearStore(key)["note"] == "saved"
    assert Session.objects.get().expire_date == expires, "a row in the clear was prolonged"
    with_cookie(key).post("/sign-out")
    assert not Session.objects.exists()


@pytest.mark.parametrize("is_saved", [False, True])
def test_sign_out_at_an_old_web_ends_the_session(client: Client, is_saved: bool) -> None:
    key = signed_in(client)
    as_stored_before(key)
    store = SessionStore(key)
    assert store.load()
    if is_saved:
        store["note"] = "saved"
        store.save()
    ClearStore(key).flush()  # what that web does
    assert not is_signed_in(key)
    with pytest.raises(UpdateError):
        store.save()
    assert not Session.objects.exists()


def test_signing_in_leaves_no_session_in_the_clear(client: Client) -> None:
    key = signed_in(client)
    as_stored_before(key)
    store = SessionStore(key)
    store.cycle_key()
    assert [row.pk for row in Session.objects.all()] == [stored_key(str(store.session_key))]


def test_expired_session_of_the_version_before_stays_expired(client: Client) -> None:
    key = signed_in(client)
    as_stored_before(key)
    Session.objects.update(expire_date=timezone.now())
    assert not is_signed_in(key)


@pytest.mark.parametrize("key", ["", "x", "\0" * 32, "ÿ" * 32, "x" * 5000, "../" * 10 + "ab"])
def test_nonsense_key_is_no_session(key: str) -> None:
    assert SessionStore(key).load() == {}
    assert not SessionStore().exists(key)


def test_data_is_signed_as_django_signs_it(client: Client) -> None:
    key = signed_in(client)
    row = Session.objects.get(pk=stored_key(key))
    assert ClearStore().decode(row.session_data) == dict(SessionStore(key).items())
    assert str(User.objects.get().pk) in dict(SessionStore(key).items()).values()


def test_asynchronous_access_is_the_same_session() -> None:
    async def change() -> tuple[str, dict[str, Any], bool, bool]:
        store = SessionStore()
        await store.aset("a", 1)
        await store.asave()
        key = str(store.session_key)
        there = await store.aexists(key)
        found = await SessionStore(key).aload()
        await SessionStore(key).adelete()
        return key, found, there, await store.aexists(key)

    key, found, there, still_there = async_to_sync(change)()
    assert (found, there, still_there) == ({"a": 1}, True, False)
    assert not is_signed_in(key)
