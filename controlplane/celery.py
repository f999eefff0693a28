"""The control plane's Celery app. Every message carries the request id of its cause and the time it was sent."""

import logging
import os
import time
from typing import Any

from celery import Celery
from celery.signals import (
    after_task_publish,
    beat_init,
    before_task_publish,
    setup_logging,
    task_failure,
    task_postrun,
    task_prerun,
)

from controlplane.common.health import BEAT_ALIVE_KEY, BEAT_ALIVE_SECONDS, redis_client
from controlplane.common.request_id import request_id_accept, request_id_current, request_id_set

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")

log = logging.getLogger(__name__)
app = Celery("luminet")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Django has configured logging already; without this handler Celery would configure its own."""


@before_task_publish.connect
def _stamp(headers: dict[str, Any], **_: Any) -> None:
    headers.setdefault("luminet_request_id", request_id_current() or request_id_accept(None))
    headers.setdefault("luminet_sent_at", time.time())


@task_prerun.connect
def _bind_request_id(task: Any, **_: Any) -> None:
    request_id_set(request_id_accept(getattr(task.request, "luminet_request_id", None)))


@task_postrun.connect
def _release_request_id(**_: Any) -> None:
    request_id_set(None)


@task_failure.connect
def _log_failure(sender: Any, task_id: str, exception: BaseException, **_: Any) -> None:
    log.error("task failed", extra={"task": sender.name, "task_id": task_id}, exc_info=exception)


@beat_init.connect
def _report_beat(**_: Any) -> None:
    """Prove that beat lives by its work: each message it sends renews a key that its health check reads."""
    client = redis_client(app.conf.broker_url)

    def renew(**_: Any) -> None:
        client.set(BEAT_ALIVE_KEY, int(time.time()), ex=BEAT_ALIVE_SECONDS)

    after_task_publish.connect(renew, weak=False)
    # The first scheduled pulse is an interval away; a starting system should not wait for it.
    pulse = app.conf.beat_schedule["pulse"]
    app.send_task(pulse["task"], **pulse["options"])
