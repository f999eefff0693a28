import asyncio
import json
from datetime import UTC, datetime

import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from controlplane.live import consumers
from controlplane.live.models import Pulse
from controlplane.live.services import PULSES_KEPT, pulse_record
from controlplane.metrics import sockets_open
from tenants.models import User
from tests.asgi_clients import Socket
from tests.factories import make_operator, make_user

pytestmark = pytest.mark.django_db(transaction=True)


def session_of(user: User) -> SessionStore:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return session


def socket(session: SessionStore | None = None, *, since: str = "", origin: str = "http://testserver") -> Socket:
    headers = [(b"host", b"testserver"), (b"origin", origin.encode())]
    if session is not None:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session.session_key}".encode()))
    return Socket("/ws/live/fleet", query=since, headers=headers)


def record() -> Pulse:
    now = datetime.now(UTC)
    return pulse_record(sent_at=now, now=now)


async def test_a_pulse_reaches_an_open_page_at_once() -> None:
    page = socket(await database_sync_to_async(lambda: session_of(make_operator()))())
    assert await page.connect()
    pulse = await database_sync_to_async(record)()
    message = await page.receive_json()
    assert (message["type"], message["seq"]) == ("pulse", pulse.pk)
    await page.disconnect()


async def test_a_page_that_comes_back_gets_what_it_missed_in_order() -> None:
    session = await database_sync_to_async(lambda: session_of(make_operator()))()
    seen, *missed = [await database_sync_to_async(record)() for _ in range(4)]
    page = socket(session, since=f"since={seen.pk}")
    await page.connect()
    assert [(await page.receive_json())["seq"] for _ in missed] == [pulse.pk for pulse in missed]
    await page.disconnect()


@pytest.mark.parametrize("since", ["", "since=", "since=-1", "since=x", "since=٣", "since=" + "9" * 30])
async def test_a_page_without_a_number_gets_the_state_as_it_is(since: str) -> None:
    session = await database_sync_to_async(lambda: session_of(make_operator()))()
    pulses = [await database_sync_to_async(record)() for _ in range(2)]
    page = socket(session, since=since)
    await page.connect()
    assert (await page.receive_json())["seq"] == pulses[-1].pk
    await page.disconnect()


async def closed_with(page: Socket) -> int:
    await page.connect()
    return int((await page.receive())["code"])


async def test_nobody_and_customers_learn_nothing() -> None:
    await database_sync_to_async(record)()
    assert await closed_with(socket()) == consumers.NOT_SIGNED_IN
    customer = await database_sync_to_async(lambda: session_of(make_user()))()
    assert await closed_with(socket(customer)) == consumers.NOT_ALLOWED


async def test_a_path_without_a_socket_is_told_so() -> None:
    headers = [(b"host", b"testserver"), (b"origin", b"http://testserver")]
    assert await closed_with(Socket("/ws/no/such/thing", headers=headers)) == consumers.NOT_FOUND


async def test_sockets_are_counted_while_they_live_however_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sockets_open._value.get()
    page = socket(await database_sync_to_async(lambda: session_of(make_operator()))())
    await page.connect()
    assert sockets_open._value.get() == before + 1
    monkeypatch.setattr(consumers, "_refusal", lambda user: 1 / 0)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0)
    await database_sync_to_async(record)()
    with pytest.raises(ZeroDivisionError):
        await until_it_ends(page)
    assert sockets_open._value.get() == before


async def until_it_ends(page: Socket) -> None:
    while await page.receive():
        pass  # the state it got on opening may come first


async def test_another_sites_page_cannot_open_a_socket() -> None:
    session = await database_sync_to_async(lambda: session_of(make_operator()))()
    assert not await socket(session, origin="https://evil.example").connect()


async def test_a_socket_closes_when_its_owner_signs_out_or_loses_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0)
    operator = await database_sync_to_async(make_operator)()
    for take_away, code in (
        (lambda session: session.delete(), consumers.NOT_SIGNED_IN),
        (lambda session: User.objects.update(is_operator=False), consumers.NOT_ALLOWED),
    ):
        session = await database_sync_to_async(session_of)(operator)
        page = socket(session)
        await page.connect()
        await database_sync_to_async(take_away)(session)
        await database_sync_to_async(record)()
        while (message := await page.receive())["type"] != "websocket.close":
            assert message["type"] == "websocket.send"  # the state it got on opening
        assert message["code"] == code


@pytest.mark.parametrize("sent", ["", "not json", "[" * 1000, json.dumps({"type": "relay"}), "\0"])
async def test_whatever_a_page_sends_is_ignored(sent: str) -> None:
    page = socket(await database_sync_to_async(lambda: session_of(make_operator()))())
    await page.connect()
    await page.send_text(sent)
    await page.send_bytes(sent.encode())
    await asyncio.sleep(0.05)
    pulse = await database_sync_to_async(record)()
    assert (await page.receive_json())["seq"] == pulse.pk
    await page.disconnect()


def test_a_pulse_delivered_twice_is_recorded_once() -> None:
    now = datetime.now(UTC)
    assert pulse_record(sent_at=now, now=now).pk == pulse_record(sent_at=now, now=now).pk
    assert Pulse.objects.count() == 1


def test_old_pulses_make_room() -> None:
    for number in range(PULSES_KEPT + 5):
        at = datetime.fromtimestamp(1_700_000_000 + number, UTC)
        pulse_record(sent_at=at, now=at)
    assert Pulse.objects.count() == PULSES_KEPT
