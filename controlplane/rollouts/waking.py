"""Request a plan at once after a commit, from a separate thread, so that a commit never waits for Redis.

Many commits in a row cause few plans: while a requested plan has not begun, another request adds nothing. The sweep
makes up for failures here.
"""

import logging
import threading
import time

import redis
from django.conf import settings

from controlplane.common.request_id import request_id_current
from controlplane.rollouts.messages import task_message
from controlplane.rollouts.transport import impatient_client

log = logging.getLogger("luminet.rollouts")
TASK = "rollouts.push"
ASKED_KEY = "luminet:push:asked"
ASKED_SECONDS = 2  # the sweep's interval, in case the process dies before the task is sent


class Waker:
    """Requests plans. One for each process; its thread begins with the first commit and ends with the process."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._request_id: str | None = None

    def wake(self) -> None:
        """Request a plan without waiting for Redis."""
        self._request_id = request_id_current()
        self._asked.set()
        if self._thread is None or not self._thread.is_alive():  # a thread does not survive a fork either
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="push-waker", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._asked.wait():
            self._asked.clear()
            try:
                push_ask(self._request_id)
            except redis.RedisError as error:
                log.warning("the push has to wait for the sweep", extra={"reason": f"{type(error).__name__}: {error}"})


def push_ask(request_id: str | None) -> None:
    """Send the task, unless one is already on its way."""
    client, queue = impatient_client(settings.ENVIRONMENT.redis_url), settings.CELERY_TASK_DEFAULT_QUEUE
    if client.set(ASKED_KEY, 1, nx=True, ex=ASKED_SECONDS):
        headers = {"luminet_request_id": request_id, "luminet_sent_at": time.time()}
        client.lpush(queue, task_message(TASK, queue=queue, headers=headers))


def push_begins() -> None:
    """Allow new requests: a commit from now on may be too late for this plan."""
    impatient_client(settings.ENVIRONMENT.redis_url).delete(ASKED_KEY)


waker = Waker()


def after_commit(verbs: frozenset[str]) -> None:
    """Request a plan after any commit: one that finds nothing to do is cheap."""
    waker.wake()
