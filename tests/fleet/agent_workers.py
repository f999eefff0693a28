"""A Celery worker as an agent's sidecar runs one, and commands for it as the control plane sends them."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import redis
from django.conf import settings

from controlplane.fleet import broker
from controlplane.fleet.enrolment import Credentials
from controlplane.rollouts.messages import task_message
from engine_agent.contracts.protocol import queue_name
from engine_agent.contracts.wire import COMMAND_TASK

SECONDS = 60

WORKS = """
import sys
from celery import Celery

url, prefix, queue, task = sys.argv[1:]
app = Celery("agent", broker=url)
app.conf.update(
    broker_transport_options={
        "global_keyprefix": prefix,
        "visibility_timeout": 1,
        "polling_interval": 5,  # longer than the worker waits for it: what was taken is looked after in between
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "health_check_interval": 1,
        "client_name": "sidecar",
    },
    broker_connection_retry_on_startup=True,
    task_default_queue=queue,
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
)


@app.task(name=task)
def command(text):
    sys.stdout.write(f"heard {text}\\n")  # in one piece: print would mix the words of two threads
    sys.stdout.flush()


quiet = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True, "use_eventloop": False}
app.WorkController(pool="threads", concurrency=2, **quiet).start()
"""


@contextmanager
def working(credentials: Credentials) -> "Iterator[Queue[str]]":
    """A worker in a process beside this one; the texts of the commands it has received."""
    place = [credentials.broker[name] for name in ("url", "prefix", "queue")]
    command = [sys.executable, "-c", WORKS, *place, COMMAND_TASK]
    heard = Queue[str]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout is not None
        lines = worker.stdout

        def listen() -> None:
            for line in lines:
                if line.startswith("heard "):
                    heard.put(line.removeprefix("heard ").strip())

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield heard
        finally:
            worker.kill()
            listener.join(SECONDS)


def command_send(agent: str, text: str) -> None:
    """Put a command into the agent's queue, under the control plane's own login."""
    message = task_message(COMMAND_TASK, [text], queue=queue_name(agent), shown="(a test's)")
    with redis.Redis.from_url(settings.ENVIRONMENT.redis_url) as client:
        client.lpush(broker.queue_key(agent), message)
