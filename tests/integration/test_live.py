"""Live sockets: who may listen, what they hear of the database, and that one cannot hold up another."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as ClearStore
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from controlplane.common.metrics import sockets_open
from controlplane.live import consumers, desk, groups, listeners, listening
from controlplane.live.models import Pulse
from controlplane.live.outbox import Outbox
from controlplane.live.routing import socket_routes
from controlplane.live.services import PULSES_KEPT, fleet_nudge, pulse_record
from tenants.actor import SYSTEM
from tenants.models import Member, Organisation, User
from tenants.services.organisations import organisation_delete
from tenants.sessions import SessionStore, stored_key
from tests.database.factories import make_operator, make_user
from tests.servers.asgi_clients import SECONDS, Socket
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)


class Numbers:
    """What the groups are told, and how often that was asked. `holds` is what they say."""

    def __init__(self) -> None:
        self.holds = 0
        self.asked: list[str] = []
        self.is_broken = False

    def __call__(self, group: str) -> dict[str, Any]:
        self.asked.append(group)
        if self.is_broken:
            raise RuntimeError("the numbers cannot be had")
        with connection.cursor() as cursor:
            cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            return {"type": "stats", "seq": cursor.fetchone()[0], "group": group, "holds": self.holds}


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture
def served(numbers: Numbers) -> Any:
    """The sockets alone, with numbers of the test's own."""
    return AuthMiddlewareStack(URLRouter(socket_routes(numbers)))


@pytest.fixture(autouse=True)
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for what is told while nothing moves; people need it more rarely."""
    monkeypatch.setattr(desk, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(desk, "QUIET_SECONDS", 0.2)


in_database: Callable[..., Any] = database_sync_to_async


def session_of(user: User) -> SessionStore:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return session


def _stored(session: SessionStore) -> str:
    return stored_key(str(session.session_key))


def operators_session() -> SessionStore:
    return session_of(make_operator())


def join(user: User, organisation: Organisation) -> Member:
    return Member.objects.create(
        organisation=organisation, email=user.email, role="viewer", user=user, joined_at=timezone.now()
    )


def member_and_session(slug: str = "acme") -> tuple[Organisation, SessionStore]:
    """Somebody of a new organisation."""
    organisation, user = make_organisation(slug), make_user(email=f"someone@{slug}.example")
    join(user, organisation)
    return organisation, session_of(user)


def socket(
    served: Any,
    session: SessionStore | None = None,
    path: str = "fleet",
    *,
    since: str = "",
) -> Socket:
    headers = [(b"host", b"testserver")]
    if session is not None:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session.session_key}".encode()))
    return Socket(f"/ws/live/{path}", query=since, headers=headers, served_by=served)


@asynccontextmanager
async def opened(page: Socket) -> AsyncIterator[Socket]:
    assert await page.connect()
    try:
        yield page
    finally:
        await page.disconnect()


async def heard(page: Socket, kind: str, check: Callable[[Any], bool] = lambda message: True) -> Any:
    """The next message of that type that is as it should be."""
    while True:
        message = await page.receive_json()
        if message["type"] == kind and check(message):
            return message


def holding(number: int) -> Callable[[Any], bool]:
    return lambda message: bool(message["holds"] == number)


def record() -> Pulse:
    now = datetime.now(UTC)
    return pulse_record(sent_at=now, now=now)


def notify(payload: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [listening.CHANNEL, payload])


# What a page hears


async def test_a_page_is_told_at_once_how_the_numbers_stand(served: Any, numbers: Numbers) -> None:
    numbers.holds = 7
    async with opened(socket(served, await in_database(operators_session)())) as page:
        message = await heard(page, "stats")
        assert (message["group"], message["holds"]) == ("fleet", 7)


async def test_what_is_counted_moves_the_organisations_page_and_the_fleets_and_no_others(
    served: Any, numbers: Numbers
) -> None:
    acme, acmes = await in_database(member_and_session)("acme")
    _, others = await in_database(member_and_session)("globex")
    operators = await in_database(operators_session)()
    async with (
        opened(socket(served, acmes, "orgs/acme")) as theirs,
        opened(socket(served, others, "orgs/globex")) as elsewhere,
        opened(socket(served, operators)) as fleet,
    ):
        for page in (theirs, elsewhere, fleet):
            await heard(page, "stats", holding(0))
        await heard(theirs, "still")  # the database is being listened to, and everybody has heard what there was
        numbers.asked.clear()
        for holds in (1, 2, 3):
            numbers.holds = holds
            await in_database(notify)(str(acme.pk))
            assert (await heard(theirs, "stats", holding(holds)))["group"] == f"org/{acme.pk}"
            await heard(fleet, "stats", holding(holds))
        others = [one for one in numbers.asked if one not in (f"org/{acme.pk}", "fleet")]
        assert len(others) <= 1, "at most by its turn, which each has once a minute"


@pytest.mark.parametrize("payload", ["*", "", "3,", "no numbers"])
async def test_where_nobody_is_named_everybody_is_meant(served: Any, numbers: Numbers, payload: str) -> None:
    _, session = await in_database(member_and_session)("acme")
    async with opened(socket(served, session, "orgs/acme")) as page:
        await heard(page, "still")
        numbers.holds = 2
        await in_database(notify)(payload)
        await heard(page, "stats", holding(2))


async def test_many_changes_in_a_second_are_counted_and_told_once(served: Any, numbers: Numbers) -> None:
    acme, session = await in_database(member_and_session)("acme")
    pages = [socket(served, session, "orgs/acme") for _ in range(5)]
    for page in pages:
        await page.connect()
        await heard(page, "still")
    numbers.asked.clear()
    for number in range(1, 21):
        numbers.holds = number
        await in_database(notify)(str(acme.pk))
    for page in pages:
        await heard(page, "stats", holding(20))
        await page.disconnect()
    assert len(numbers.asked) <= 3  # the first at once, and the last a second later


async def test_while_nothing_moves_a_page_is_told_that_its_numbers_still_hold(served: Any) -> None:
    _, session = await in_database(member_and_session)("acme")
    async with opened(socket(served, session, "orgs/acme")) as page:
        told = await heard(page, "stats")
        assert (await heard(page, "still"))["seq"] > told["seq"]


async def test_numbers_that_cannot_be_had_are_not_said_to_hold(
    served: Any, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "QUIET_SECONDS", 0.0)
    numbers.is_broken = True
    checks = asyncio.Event()
    monkeypatch.setattr(desk, "listeners_check", partial(_checked_and_told, checks, asyncio.get_running_loop()))
    _, session = await in_database(member_and_session)("acme")
    async with opened(socket(served, session, "orgs/acme")) as page:
        for _ in range(3):
            checks.clear()
            await checks.wait()
        numbers.is_broken, numbers.holds = False, 3
        await in_database(notify)("*")
        first = await page.receive_json()
        assert (first["type"], first["holds"]) == ("stats", 3)


async def test_a_count_that_failed_is_tried_again_though_nobody_asks(served: Any, numbers: Numbers) -> None:
    _, session = await in_database(member_and_session)("acme")
    async with opened(socket(served, session, "orgs/acme")) as page:
        await heard(page, "still")  # whoever listens has asked, and asks no more
        numbers.is_broken = True
        numbers.asked.clear()
        await in_database(notify)("*")
        while not numbers.asked:
            await in_database(len)(numbers.asked)
        numbers.is_broken, numbers.holds = False, 9
        await heard(page, "stats", holding(9))


async def test_pulses_do_not_keep_a_fleet_page_from_hearing_that_its_numbers_hold() -> None:
    """A page that hears pulses alone cannot know whether its numbers are those of now."""

    async def counted(name: str) -> dict[str, Any]:
        return {"type": "stats", "seq": 1}

    fleet, page = groups.Group("fleet", counted), Outbox(listeners.Listener("s", 1))
    fleet.add(page)
    (stats,) = await page.taken()
    heard_at = asyncio.get_running_loop().time()
    fleet.relay({"type": "pulse", "at": 1})
    (pulse,) = await page.taken()
    quiet_seconds = asyncio.get_running_loop().time() - heard_at  # since the numbers, and the pulse came within
    fleet.tell_still({"type": "still", "seq": 2}, quiet_seconds=quiet_seconds)
    (still,) = await page.taken()
    fleet.close()
    assert [json.loads(one)["type"] for one in (stats, pulse, still)] == ["stats", "pulse", "still"]


async def test_who_comes_is_not_told_old_numbers_while_they_cannot_be_counted(served: Any, numbers: Numbers) -> None:
    _, session = await in_database(member_and_session)("acme")
    async with opened(socket(served, session, "orgs/acme")) as page:
        await heard(page, "still")
        numbers.is_broken = True
        numbers.asked.clear()
        await in_database(notify)("*")
        async with asyncio.timeout(SECONDS):
            while len(numbers.asked) < 2:  # the first has failed by the time of the second
                await in_database(len)(numbers.asked)
        async with opened(socket(served, session, "orgs/acme")) as late:
            numbers.is_broken, numbers.holds = False, 5
            assert (await heard(late, "stats"))["holds"] == 5


def _checked_and_told(told: asyncio.Event, loop: asyncio.AbstractEventLoop, asked: Any) -> listeners.Checked:
    found = listeners.listeners_check(asked)
    loop.call_soon_threadsafe(told.set)
    return found


async def test_with_every_minute_the_window_moves_on(
    served: Any, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "MINUTE", 0.2)
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "stats")
        numbers.holds = 4
        await heard(page, "stats", holding(4))


async def test_with_every_minute_each_group_is_counted_once_and_not_all_of_them_at_once(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = desk.Desk(numbers)
    moved: list[str] = []
    group = type("Group", (), {"__init__": lambda self, name: setattr(self, "moved", lambda: moved.append(name))})
    monkeypatch.setattr(one, "_groups", {name: group(name) for name in ("fleet", "org/1", "org/2")})
    waits: list[tuple[int, float]] = []

    async def slept(seconds: float) -> None:
        waits.append((len(moved), seconds))

    monkeypatch.setattr(desk, "asyncio", type("Asyncio", (), {"sleep": staticmethod(slept)}))
    await one._turn()
    assert moved == ["fleet", "org/1", "org/2"]
    each = desk.MINUTE * desk.TURNED_WITHIN / 3
    assert waits == [(1, each), (2, each), (3, each)]


async def test_a_listening_connection_that_is_killed_comes_back_and_misses_nothing(
    served: Any, numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "still")
        numbers.holds = 5  # and nobody is notified
        assert await in_database(kill_listeners)() == 1
        await heard(page, "stats", holding(5))
        await heard(page, "still")  # it listens again
        numbers.holds = 6
        await in_database(notify)("*")
        await heard(page, "stats", holding(6))
    assert "not listening to the database" in caplog.text


def kill_listeners() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND datname = %s",
            [connection.settings_dict["NAME"]],
        )
        return len(cursor.fetchall())


async def test_while_it_cannot_listen_it_asks(served: Any, numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def refused(**given: Any) -> Any:
        nonlocal attempts
        attempts += 1
        raise psycopg.OperationalError("not today")

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refused)
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "stats", holding(0))
        numbers.holds = 8
        await heard(page, "stats", holding(8))
    assert attempts > 0


async def test_nothing_is_asked_or_listened_to_once_the_last_page_is_closed(served: Any) -> None:
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "still")
        assert await in_database(listening_now)() == 1
    while await in_database(listening_now)():
        pass  # it is being closed


def listening_now() -> int:
    with connection.cursor() as cursor:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND datname = %s"
        cursor.execute(sql, [connection.settings_dict["NAME"]])
        return int(cursor.fetchone()[0])


# Pulses, and what a page has missed


async def test_a_pulse_reaches_an_open_page_at_once(served: Any) -> None:
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "stats")
        pulse = await in_database(record)()
        assert (await heard(page, "pulse"))["seq"] == int(pulse.recorded_at.timestamp() * 1000)


async def test_what_moves_in_the_fleet_reaches_its_pages_with_a_number(served: Any) -> None:
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await heard(page, "stats")
        await in_database(fleet_nudge)({"type": "fleet", "at": 1_700_000_000.25})
        assert (await heard(page, "fleet"))["seq"] == 1_700_000_000_250


def record_some(number: int, *, seconds_apart: int) -> list[Pulse]:
    begin = datetime.now(UTC) - timedelta(seconds=number * seconds_apart)
    times = [begin + timedelta(seconds=index * seconds_apart) for index in range(number)]
    return [pulse_record(sent_at=at, now=at) for at in times]


async def test_a_page_that_comes_back_gets_what_it_missed_in_order(served: Any) -> None:
    session = await in_database(operators_session)()
    _, seen, *missed = await in_database(record_some)(5, seconds_apart=60)
    async with opened(socket(served, session, since=f"since={seen.seq}")) as page:
        told = [(await heard(page, "pulse"))["seq"] for _ in range(4)]
    assert told == [seen.seq, *(pulse.seq for pulse in missed)]


async def test_what_became_known_late_is_told_though_it_is_older_than_what_a_page_has_seen(served: Any) -> None:
    session = await in_database(operators_session)()
    late, seen = await in_database(record_some)(2, seconds_apart=1)
    async with opened(socket(served, session, since=f"since={seen.seq}")) as page:
        assert (await heard(page, "pulse"))["seq"] == late.seq


@pytest.mark.parametrize("since", ["", "since=", "since=-1", "since=0", "since=x", "since=٣", "since=" + "9" * 30])
async def test_a_page_without_a_number_gets_the_state_as_it_is(served: Any, since: str) -> None:
    session = await in_database(operators_session)()
    pulses = await in_database(record_some)(2, seconds_apart=60)
    async with opened(socket(served, session, since=since)) as page:
        assert (await heard(page, "pulse"))["seq"] == pulses[-1].seq
        await heard(page, "stats")


async def test_a_number_from_the_future_costs_a_page_nothing(served: Any) -> None:
    """The database's clock was set back, or it is another database."""
    session = await in_database(operators_session)()
    pulse = await in_database(record)()
    async with opened(socket(served, session, since=f"since={consumers.LATEST_SINCE}")) as page:
        assert (await heard(page, "pulse"))["seq"] == pulse.seq
        await heard(page, "stats")


# Who may listen


async def closed_with(page: Socket) -> int:
    assert await page.connect()
    return await code_of(page)


async def code_of(page: Socket) -> int:
    """With which it is closed, sooner or later."""
    while (message := await page.receive())["type"] != "websocket.close":
        assert message["type"] == "websocket.send"
    return int(message["code"])


async def test_nobody_and_customers_learn_nothing_of_the_fleet(served: Any, numbers: Numbers) -> None:
    await in_database(record)()
    assert await closed_with(socket(served)) == listeners.NOT_SIGNED_IN
    _, customer = await in_database(member_and_session)()
    assert await closed_with(socket(served, customer)) == listeners.NOT_ALLOWED
    assert numbers.asked == []


async def test_another_organisation_and_one_that_is_not_there_are_told_alike(served: Any, numbers: Numbers) -> None:
    await in_database(make_organisation)("globex")
    _, session = await in_database(member_and_session)("acme")
    for slug in ("globex", "nowhere", "No_Slug"):
        assert await closed_with(socket(served, session, f"orgs/{slug}")) == listeners.NOT_FOUND
    assert await closed_with(socket(served, None, "orgs/acme")) == listeners.NOT_SIGNED_IN
    assert numbers.asked == []


async def test_an_operator_listens_to_any_organisation_there_is(served: Any) -> None:
    acme = await in_database(make_organisation)("acme")
    session = await in_database(operators_session)()
    async with opened(socket(served, session, "orgs/acme")) as page:
        assert (await heard(page, "stats"))["group"] == f"org/{acme.pk}"
    assert await closed_with(socket(served, session, "orgs/nowhere")) == listeners.NOT_FOUND


def _stored_before(session: SessionStore) -> None:
    """Put the row where the version before has it."""
    Session.objects.filter(pk=_stored(session)).update(session_key=str(session.session_key))


async def test_session_of_the_version_before_listens(served: Any) -> None:
    session = await in_database(operators_session)()
    await in_database(_stored_before)(session)
    page = socket(served, session)
    assert await page.connect()
    assert await heard(page, "stats")
    await in_database(ClearStore(session.session_key).flush)()  # as a web of that version signs out
    assert await code_of(page) == listeners.NOT_SIGNED_IN


async def test_a_path_without_a_socket_is_told_so(served: Any) -> None:
    assert await closed_with(socket(served, None, "such/thing")) == listeners.NOT_FOUND


def _expire(session: SessionStore) -> None:
    Session.objects.filter(session_key=_stored(session)).update(expire_date=timezone.now())


def _new_password(session: SessionStore) -> None:
    user = User.objects.get(pk=session[SESSION_KEY])
    user.set_password("another battery staple")
    user.save()


def _delete_organisation(session: SessionStore) -> None:
    organisation_delete(actor=SYSTEM, organisation=Organisation.objects.get(), expected=None)


ENDS: dict[str, tuple[Callable[[SessionStore], Any], int]] = {
    "signed out": (lambda session: session.delete(), listeners.NOT_SIGNED_IN),
    "session over": (_expire, listeners.NOT_SIGNED_IN),
    "password changed": (_new_password, listeners.NOT_SIGNED_IN),
    "switched off": (lambda session: User.objects.update(is_active=False), listeners.NOT_SIGNED_IN),
    "account gone": (lambda session: User.objects.all().delete(), listeners.NOT_SIGNED_IN),
}
ENDS_OF_OPERATORS = {"role lost": (lambda session: User.objects.update(is_operator=False), listeners.NOT_ALLOWED)}
ENDS_OF_MEMBERS = {
    "membership gone": (lambda session: Member.objects.all().delete(), listeners.NOT_FOUND),
    "organisation deleted": (_delete_organisation, listeners.NOT_FOUND),
}


@pytest.mark.parametrize("how", [*ENDS, *ENDS_OF_OPERATORS])
async def test_a_fleet_page_is_cut_when_access_ends_though_nothing_is_told(served: Any, how: str) -> None:
    end, code = (ENDS | ENDS_OF_OPERATORS)[how]
    session = await in_database(operators_session)()
    page = socket(served, session)
    await page.connect()
    await heard(page, "stats")
    await in_database(end)(session)
    assert await code_of(page) == code


@pytest.mark.parametrize("how", [*ENDS, *ENDS_OF_MEMBERS])
async def test_an_organisations_page_is_cut_when_access_ends(served: Any, how: str) -> None:
    end, code = (ENDS | ENDS_OF_MEMBERS)[how]
    _, session = await in_database(member_and_session)()
    page = socket(served, session, "orgs/acme")
    await page.connect()
    await heard(page, "stats")
    await in_database(end)(session)
    assert await code_of(page) == code


async def test_whoever_still_may_goes_on_listening(served: Any) -> None:
    acme, session = await in_database(member_and_session)()
    other = await in_database(lambda: make_user(email="other@acme.example"))()
    await in_database(join)(other, acme)
    theirs = await in_database(session_of)(other)
    async with opened(socket(served, theirs, "orgs/acme")) as stays:
        goes = socket(served, session, "orgs/acme")
        await goes.connect()
        await in_database(session.delete)()
        assert await code_of(goes) == listeners.NOT_SIGNED_IN
        await heard(stays, "still")


async def test_however_long_counting_takes_who_comes_is_let_in_and_who_has_to_go_is_cut(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    counting = threading.Semaphore(0)

    def count(group: str) -> dict[str, Any]:
        counting.release()
        goes_on.wait(60)
        return {"type": "stats", "seq": 1, "group": group}

    served = AuthMiddlewareStack(URLRouter(socket_routes(count)))
    sessions = [(await in_database(member_and_session)(f"acme{number}"))[1] for number in range(4)]
    pages = [socket(served, session, f"orgs/acme{number}") for number, session in enumerate(sessions)]
    try:
        for page in pages:
            assert await page.connect()
        for _ in range(desk.COUNTING_THREADS):  # as many as there can be are counting
            assert await asyncio.get_running_loop().run_in_executor(None, counting.acquire)
        await in_database(sessions[0].delete)()
        assert await code_of(pages[0]) == listeners.NOT_SIGNED_IN
    finally:
        goes_on.set()
    for page in pages[1:]:
        await page.disconnect()


def test_all_listeners_are_checked_in_one_query(django_assert_num_queries: Any) -> None:
    organisation, session = member_and_session()
    operator = operators_session()
    known = listeners.Listener(_stored(session), int(session[SESSION_KEY]), organisation.pk)
    fleet = listeners.Listener(_stored(operator), int(operator[SESSION_KEY]))
    strangers = [listeners.Listener(f"unknown-{number}", number, number) for number in range(50)]
    with django_assert_num_queries(1):
        checked = listeners.listeners_check([known, *strangers, fleet, known])
    assert checked.refused == dict.fromkeys(strangers, listeners.NOT_SIGNED_IN)


def test_a_session_that_is_not_the_listeners_own_lets_nobody_listen() -> None:
    organisation, session = member_and_session()
    another = make_user(email="another@acme.example")
    join(another, organisation)
    thief = listeners.Listener(_stored(session), another.pk, organisation.pk)
    assert listeners.listeners_check([thief]).refused == {thief: listeners.NOT_SIGNED_IN}


# One socket and the others


class Stuck:
    """A client that reads no more once it has opened: whatever is sent to it waits."""

    def __init__(self, served: Any, session: SessionStore, path: str) -> None:
        self._served = served
        self._waiting = asyncio.Event()
        self._scope = {
            "type": "websocket",
            "path": f"/ws/live/{path}",
            "query_string": b"",
            "headers": [
                (b"host", b"testserver"),
                (b"cookie", f"{settings.SESSION_COOKIE_NAME}={session.session_key}".encode()),
            ],
            "subprotocols": [],
        }
        self._opened = False
        self.closed_with: int | None = None
        self.is_stuck = asyncio.Event()

    async def run(self) -> None:
        await self._served(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._opened:
            await self._waiting.wait()
        self._opened = True
        return {"type": "websocket.connect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self.closed_with = message["code"]
        elif message["type"] == "websocket.send":
            self.is_stuck.set()
            await self._waiting.wait()


async def test_a_client_that_does_not_read_is_let_go_and_holds_up_nobody(
    served: Any, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "SEND_SECONDS", 4.0)
    kept: list[Outbox] = []
    monkeypatch.setattr(consumers, "Outbox", partial(_keep, kept))
    acme, session = await in_database(member_and_session)()
    stuck = Stuck(served, session, "orgs/acme")
    ending = asyncio.create_task(stuck.run())
    await stuck.is_stuck.wait()
    async with opened(socket(served, session, "orgs/acme")) as page:
        for number in range(1, 4):
            numbers.holds = number
            await in_database(notify)(str(acme.pk))
            await heard(page, "stats", holding(number))
            assert len(kept[0]) <= 2  # one of each type: numbers, and that they still hold
        await ending
        assert stuck.closed_with == consumers.TOO_SLOW
        numbers.holds = 99
        await in_database(notify)(str(acme.pk))
        await heard(page, "stats", holding(99))


def _keep(kept: list[Outbox], listener: listeners.Listener) -> Outbox:
    kept.append(Outbox(listener))
    return kept[-1]


async def test_a_slow_socket_gets_the_newest_and_not_what_it_was_too_slow_for() -> None:
    outbox = Outbox(listeners.Listener("s", 1))
    for number in range(1000):
        outbox.offer("stats", f"stats {number}")
        outbox.offer("pulse", f"pulse {number}")
    assert await outbox.taken() == ["stats 999", "pulse 999"]


async def test_sockets_are_counted_while_they_live_however_they_end(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sockets_open._value.get()
    page = socket(served, await in_database(operators_session)())
    await page.connect()
    await heard(page, "stats")
    assert sockets_open._value.get() == before + 1
    monkeypatch.setattr(consumers, "_sent", lambda send, text: 1 / 0)
    await in_database(record)()
    with pytest.raises(ZeroDivisionError):
        await code_of(page)
    assert sockets_open._value.get() == before


@pytest.mark.parametrize("sent", ["", "not json", "[" * 1000, json.dumps({"type": "relay"}), "\0"])
async def test_whatever_a_page_sends_is_ignored(served: Any, sent: str) -> None:
    async with opened(socket(served, await in_database(operators_session)())) as page:
        await page.send_text(sent)
        await page.send_bytes(sent.encode())
        await heard(page, "stats")
        pulse = await in_database(record)()
        await heard(page, "pulse", lambda message: message["seq"] == pulse.seq)


# Pulses as rows


def test_a_pulse_delivered_twice_is_recorded_once() -> None:
    now = datetime.now(UTC)
    assert pulse_record(sent_at=now, now=now).pk == pulse_record(sent_at=now, now=now).pk
    assert Pulse.objects.count() == 1


def test_old_pulses_make_room() -> None:
    for number in range(PULSES_KEPT + 5):
        at = datetime.fromtimestamp(1_700_000_000 + number, UTC)
        pulse_record(sent_at=at, now=at)
    assert Pulse.objects.count() == PULSES_KEPT
