"""Deeds done at the same moment, each in a thread with a connection of its own. For tests with transaction=True."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

from django.db import connection

from tenants.audit import audited

Deed = Callable[[], Any]
LOOK_SECONDS = 0.005
TURN_SECONDS = 60.0  # until somebody's turn comes, on however busy a machine


def at_once(*deeds: Deed) -> list[Any]:
    """What each of them returned or raised. They wait for each other for as long as the machine needs."""
    barrier = Barrier(len(deeds))

    def run(deed: Deed) -> Any:
        try:
            barrier.wait(TURN_SECONDS)
            return _patient(deed)()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(deeds)) as pool:
        return list(pool.map(run, deeds))


def while_uncommitted(first: Deed, second: Deed) -> list[Any]:
    """The second begins when the first is done, which commits when the second waits for it or has ended."""
    done, over, waiter = Event(), Event(), Future[int]()

    def left_open() -> Any:
        with audited():
            try:
                return first()
            finally:
                done.set()
                _wait_until_blocked(waiter.result(TURN_SECONDS), over)

    def after() -> Any:
        try:
            connection.ensure_connection()
            waiter.set_result(connection.connection.info.backend_pid)
            done.wait(TURN_SECONDS)
            return second()
        finally:
            over.set()

    return at_once(left_open, after)


def _wait_until_blocked(pid: int, over: Event) -> None:
    """Return once this process of the database waits for a lock of another, or `over` is set."""
    look, ends_at = connection.copy(), time.monotonic() + TURN_SECONDS
    try:
        with look.cursor() as cursor:
            while not over.wait(LOOK_SECONDS) and time.monotonic() < ends_at:
                cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid])
                if cursor.fetchone() == (True,):
                    return
    finally:
        look.close()


def while_held(first: Deed, second: Deed) -> list[Any]:
    """The first commits when the second has ended. The second gives up at once where it would have to wait for it."""
    begun, over = Event(), Event()

    def held() -> Any:
        with audited():
            try:
                return first()
            finally:
                begun.set()
                over.wait(TURN_SECONDS)

    def meanwhile() -> Any:
        begun.wait(TURN_SECONDS)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '50ms'")
            return second()
        finally:
            over.set()

    return at_once(held, meanwhile)


def _patient(deed: Deed) -> Deed:
    """Let deeds queue for the same rows: on a busy machine several of them take longer, one after the other, than
    production lets anybody wait for a lock."""

    def waiting() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '60s'; SET statement_timeout = '60s'")
        return deed()

    return waiting


def failures(outcomes: list[Any]) -> list[str]:
    """The kinds of errors among them."""
    return sorted(type(one).__name__ for one in outcomes if isinstance(one, Exception))
