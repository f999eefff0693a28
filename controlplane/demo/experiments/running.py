"""Running experiments: at most one of a kind, in a thread, or in a separate process if it outlives this one.

Redis keeps the results for a quarter of an hour.
"""

import json
import logging
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Final

import redis
from django.conf import settings
from django.db import connection

from controlplane.common.health import redis_client
from controlplane.dashboard.experiments.asking import NotAnswered
from controlplane.demo.experiments.trials import SILENT_SECONDS, NotPossible, Step, Told, told_read
from tenants.actor import Actor
from tenants.errors import TenantsError

log = logging.getLogger("luminet.five_minutes")
KEPT_SECONDS: Final = 900
PROCESS: Final = "controlplane.demo.experiments.outliving"  # started by name: importing it would be circular
_BUSY, _LAST, _LEFT = (f"luminet:five-minutes:{suffix}:" for suffix in ("busy", "last", "left"))
Experiment = Callable[[Actor], Iterator[Step | None]]  # None: still running, nothing to report


def experiment_begin(kind: str, experiment: Experiment, actor: Actor, *, outlives: bool = False) -> bool:
    """Start an experiment, or return False if one of its kind is running."""
    now, run = time.time(), secrets.token_urlsafe(16)
    with _client() as client:
        if not client.set(f"{_BUSY}{kind}", run, nx=True, ex=SILENT_SECONDS):
            return False
        experiment_log = Told(run, kind, now, now)
        _keep(client, experiment_log)
    if outlives:
        _process_begin(kind, actor)
        return True
    threading.Thread(
        target=experiment_run, args=(experiment_log, experiment, actor), daemon=True, name=f"five-minutes-{kind}"
    ).start()
    return True


def _process_begin(kind: str, actor: Actor) -> None:
    """Start the separate process. It inherits the settings, but no pipe that the web's supervisor would wait for."""
    no_stream = subprocess.DEVNULL
    command = [sys.executable, "-m", PROCESS, kind, actor.id, actor.address, actor.request_id]
    subprocess.Popen(command, stdin=no_stream, stdout=no_stream, stderr=no_stream, start_new_session=True)


def experiment_told(kind: str) -> Told | None:
    """Return the results of the newest run of this kind."""
    with _client() as client:
        stored = client.get(f"{_LAST}{kind}")
    return told_read(json.loads(stored)) if isinstance(stored, bytes) else None


def left_put(kind: str, undo_fields: dict[str, object]) -> None:
    """Store how to undo a change before it is made, so that the next run can undo it if this one cannot."""
    with _client() as client:
        client.set(f"{_LEFT}{kind}", json.dumps(undo_fields))


def left_take(kind: str) -> dict[str, object] | None:
    with _client() as client:
        stored = client.get(f"{_LEFT}{kind}")
    return json.loads(stored) if isinstance(stored, bytes) else None


def left_clear(kind: str) -> None:
    with _client() as client:
        client.delete(f"{_LEFT}{kind}")


def experiment_run(experiment_log: Told, experiment: Experiment, actor: Actor) -> None:
    """Run the experiment and store its steps and how it ended, also when it fails."""
    problem = ""
    try:
        with closing(_steps(experiment, actor)) as steps:  # closing undoes the experiment, whatever happened
            for step in steps:
                experiment_log.at = time.time()
                if step is not None:
                    experiment_log.add(step, now=experiment_log.at)
                _told(experiment_log)
    except (NotPossible, NotAnswered, TenantsError) as error:
        problem = str(error)
    except redis.RedisError:
        problem = "Redis did not answer, which keeps what is told here."
    except Exception:
        log.exception("experiment failed", extra={"experiment": experiment_log.kind})
        problem = "Something broke on our side, and what it is was logged."
    finally:
        experiment_log.end(problem, now=time.time())
        try:
            _told(experiment_log)
            with _client() as client:
                client.delete(f"{_BUSY}{experiment_log.kind}")
        except redis.RedisError:
            log.warning("experiment could not tell its end", extra={"experiment": experiment_log.kind})
        connection.close()


def _steps(experiment: Experiment, actor: Actor) -> Generator[Step | None, None, None]:
    yield from experiment(actor)


def _told(experiment_log: Told) -> None:
    with _client() as client:
        client.expire(f"{_BUSY}{experiment_log.kind}", SILENT_SECONDS)
        _keep(client, experiment_log)


def _keep(client: redis.Redis, experiment_log: Told) -> None:
    client.set(f"{_LAST}{experiment_log.kind}", json.dumps(experiment_log.stored()), ex=KEPT_SECONDS)


def _client() -> redis.Redis:
    return redis_client(settings.ENVIRONMENT.redis_url)
