"""Sessions of the database and the locks they hold: nobody holds one for longer than there is somebody."""

from collections.abc import Iterator
from copy import deepcopy

import pytest
from django.db import DatabaseError, connection
from django.db.backends.postgresql.base import DatabaseWrapper

from controlplane.database import locks
from controlplane.rollouts import assigning
from controlplane.rollouts.assigning import PLANNING_LOCK, planning
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseWrapper]:
    """A connection as production has it: given back to a pool when it is closed."""
    settings = deepcopy(connection.settings_dict)
    settings["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 2, "timeout": 5}
    found = DatabaseWrapper(settings, alias="pooled")
    for module in (assigning, locks):
        monkeypatch.setattr(module, "connection", found)
    yield found
    found.close()
    found.close_pool()  # type: ignore[attr-defined]  # newer than its stubs


def holders(lock: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", [lock & 0xFFFFFFFF])
        return [pid for (pid,) in cursor.fetchall()]


def test_a_connection_whose_unlocking_failed_is_not_given_back_with_the_lock(pooled: DatabaseWrapper) -> None:
    with planning():
        assert len(holders(PLANNING_LOCK)) == 1
        pooled.set_autocommit(False)
        with pooled.cursor() as cursor, pytest.raises(DatabaseError):
            cursor.execute("SELECT 1 / 0")  # from here on the transaction takes no statement, nor to unlock
    pooled.pool.wait()  # type: ignore[attr-defined]  # newer than its stubs
    # The connection is closed; its server process lets go of the lock a moment later.
    wait_until(lambda: not holders(PLANNING_LOCK), "the lock of a connection that was not given back to be free")
    with planning():
        assert len(holders(PLANNING_LOCK)) == 1
    assert holders(PLANNING_LOCK) == []


def test_the_server_notices_within_half_a_minute_that_we_have_vanished() -> None:
    if connection.settings_dict["HOST"].startswith("/"):
        pytest.skip("over a socket of the machine itself there is nothing to lose")
    found = {}
    with connection.cursor() as cursor:
        for name in ("idle", "interval", "count"):
            cursor.execute(f"SHOW tcp_keepalives_{name}")
            found[name] = int(cursor.fetchone()[0])
    assert found == {"idle": 10, "interval": 5, "count": 3}
