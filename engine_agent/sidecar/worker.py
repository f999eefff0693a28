"""The Celery worker on an agent's queue: it takes sealed commands, passes them on, and acknowledges each when settled.

One process may run several, each with its own app, login and threads, so nothing here uses Celery's global state.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.bootsteps import CLOSE  # type: ignore[attr-defined]
from celery.concurrency.thread import TaskPool
from celery.worker import WorkController

from engine_agent.contracts.protocol import broker_url_verified
from engine_agent.contracts.wire import COMMAND_TASK

log = logging.getLogger("luminet.sidecar")
CHATTY = ("celery.worker.strategy", "celery.app.trace")  # they log two lines for each command
THREADS = 2  # one applies a command, the other takes newer ones that supersede the commands after it
# Without an event loop, acknowledgements wait until Celery polls, at least every two seconds. Each thread takes so many
# messages before the wait delays the next.
TAKEN_AHEAD = 32
VISIBILITY_SECONDS = 60  # before the broker repeats an unacknowledged command; no command is valid for so long
RESTART_SECONDS = (1.0, 30.0)
STOP_SECONDS = 5.0

# The sealed text, and whether it is a redelivery; returns when the command is settled.
Take = Callable[[object, bool], None]


class _Pool(TaskPool):
    """A thread pool that uses the app it was created for. Celery's would use the process's current app."""

    def on_apply(self, target: Any, args: Any = None, kwargs: Any = None, *positional: Any, **options: Any) -> Any:
        return super().on_apply(target, args, {**(kwargs or {}), "app": self.app}, *positional, **options)


class CommandWorker:
    """A Celery worker in its own threads. It restarts until `stop` is called."""

    def __init__(self, *, url: str, prefix: str, queue: str, take: Take) -> None:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._app = _app(url, prefix, queue)
        self._queue = queue
        self._stopping = threading.Event()
        self._controller: WorkController | None = None
        self._thread = threading.Thread(target=self._run, name=f"worker of {queue}", daemon=True)

        @self._app.task(name=COMMAND_TASK, bind=True, shared=False, acks_late=True, ignore_result=True)
        def command(task: Any, sealed: object = None) -> None:
            take(sealed, bool((task.request.delivery_info or {}).get("redelivered")))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop taking commands. The broker redelivers those that are not settled within the stop time."""
        self._stopping.set()
        if self._controller is not None and (consumer := getattr(self._controller, "consumer", None)) is not None:
            consumer.blueprint.state = CLOSE  # its loop checks this every two seconds
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        first, longest = RESTART_SECONDS
        wait = first
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._controller = self._made()
                self._controller.start()
                self._controller.stop()
            except (Exception, SystemExit) as problem:  # Celery may end a worker with SystemExit
                log.warning("the worker on %s ended: %s", self._queue, type(problem).__name__, exc_info=problem)
            wait = first if time.monotonic() - began > longest else min(longest, wait * 2)
            self._stopping.wait(wait)

    def _made(self) -> WorkController:
        return WorkController(
            app=self._app,
            hostname=self._queue,
            queues=self._queue,
            pool=_Pool,
            concurrency=THREADS,
            use_eventloop=False,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )


def _app(url: str, prefix: str, queue: str) -> Celery:
    app = Celery(queue, broker=broker_url_verified(url), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        broker_pool_limit=1,
        broker_transport_options={
            "global_keyprefix": prefix,
            "visibility_timeout": VISIBILITY_SECONDS,
            "unacked_restore_interval": 2,
            "unacked_restore_throttle": 1,
            "priority_steps": [0],
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        task_acks_late=True,
        task_create_missing_queues=True,
        task_default_queue=queue,
        task_ignore_result=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=TAKEN_AHEAD,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_state_db=None,
    )
    return app
