"""The Celery worker on an agent's queue: takes sealed commands, hands them in, and acknowledges each when settled.

Several may run in one process, each with an app, a login and threads of its own: nothing here is global, where Celery
would have it so.
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
CHATTY = ("celery.worker.strategy", "celery.app.trace")  # two lines for each command
THREADS = 2  # a command that is being applied, and the newer one that supersedes what comes after it
# Without an event loop, acknowledgements wait until Celery looks up, which it does at least every two seconds: so many
# messages for each thread are taken before that holds up the next.
TAKEN_AHEAD = 32
VISIBILITY_SECONDS = 60  # after which what nobody acknowledged is given out again: longer than any command is good for
RESTART_SECONDS = (1.0, 30.0)
STOP_SECONDS = 5.0

Take = Callable[[object, bool], None]  # the sealed text, and whether it comes again; returns when it is settled


class _Pool(TaskPool):
    """Threads that work for the app they were made for: Celery's would look for the one current app of the process."""

    def on_apply(self, target: Any, args: Any = None, kwargs: Any = None, *others: Any, **options: Any) -> Any:
        return super().on_apply(target, args, {**(kwargs or {}), "app": self.app}, *others, **options)


class CommandWorker:
    """Runs in threads of its own until it is stopped, and begins again whenever it ends by itself."""

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
        """Takes nothing more; what is in hand is given out again by the broker, unless it is settled soon."""
        self._stopping.set()
        if self._controller is not None and (consumer := getattr(self._controller, "consumer", None)) is not None:
            consumer.blueprint.state = CLOSE  # at which its loop looks every two seconds
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        first, most = RESTART_SECONDS
        wait = first
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._controller = self._made()
                self._controller.start()
                self._controller.stop()
            except (Exception, SystemExit) as problem:  # Celery ends its workers like programs
                log.warning("the worker on %s ended: %s", self._queue, type(problem).__name__, exc_info=problem)
            wait = first if time.monotonic() - began > most else min(most, wait * 2)
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
