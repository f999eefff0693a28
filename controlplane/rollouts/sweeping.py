"""The work done every two seconds, so that a lost message only causes a delay.

Each part is run separately: one that fails is logged and retried by the next sweep, and does not stop the others. Only
one sweep runs at a time: a slow one delays the next.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

import redis
from django.conf import settings
from django.db import connection

from controlplane.common.health import redis_client
from controlplane.database.locks import alone
from controlplane.fleet.broker import logins_restore
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.health_update import conditions_update
from controlplane.fleet.operations import steps_sweep
from controlplane.rollouts.advancing import rollouts_advance
from controlplane.rollouts.assigning import PlanningBusy
from controlplane.rollouts.planner import pages_nudge, plan_carry_out
from controlplane.rollouts.services import rollouts_forget

log = logging.getLogger("luminet.rollouts")
SWEEP_LOCK = 7_446_220_462  # any number that no other code locks
LOGINS_SECONDS = 10.0


class LoginsKept:
    """Checks the agents' logins at intervals, and at once after Redis was restarted or replaced, which loses them."""

    def __init__(self) -> None:
        self._run_id = ""
        self._looked_at = float("-inf")

    def keep(self, *, now: datetime) -> None:
        run_id, monotonic = _run_id(), time.monotonic()
        if run_id != self._run_id or monotonic - self._looked_at >= LOGINS_SECONDS:
            logins_restore()
            self._run_id, self._looked_at = run_id, monotonic


_logins = LoginsKept()
Part = Callable[[datetime], object]
PARTS: tuple[tuple[str, Part], ...] = (
    ("logins", lambda now: _logins.keep(now=now)),
    ("rollouts", lambda now: rollouts_advance(now=now)),  # before the plan, which sends what they decide
    ("old rollouts", lambda now: rollouts_forget(now=now)),
    ("plan", lambda now: plan_carry_out(now=now)),
    ("operations", lambda now: steps_sweep(now=now)),
    ("conditions", lambda now: conditions_update(now=now)),
    ("pages", lambda now: pages_nudge(now=now)),
)


def sweep(*, now: datetime) -> list[str]:
    """Run all parts and return those that failed. Do nothing while another sweep runs."""
    with alone(SWEEP_LOCK) as is_alone:
        return [name for name, part in PARTS if not _tried(name, part, now)] if is_alone else []


def _tried(name: str, part: Part, now: datetime) -> bool:
    try:
        part(now)
    except (BrokerAway, PlanningBusy, redis.RedisError) as error:
        reason = f"{type(error).__name__}: {error}"
        log.warning("a part of the sweep has to wait for the next", extra={"part": name, "reason": reason})
        return False
    except Exception:
        log.exception("a part of the sweep failed", extra={"part": name})
        if not connection.is_usable():
            connection.close()  # the next part opens another connection
        return False
    return True


def _run_id() -> str:
    with redis_client(settings.ENVIRONMENT.redis_url) as client:
        return str(client.info("server")["run_id"])
