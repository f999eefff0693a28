"""Celery messages as kombu stores them in Redis, written without either library, so that the web process loads neither.

Protocol 2 of Celery, in kombu's envelope; tests/integration/test_push_transport.py has real workers read them.
"""

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any


def task_message(
    task: str, arguments: Sequence[Any] = (), *, queue: str, shown: str = "()", headers: Mapping[str, Any] | None = None
) -> bytes:
    """Return a message to push at the left of the list `queue`, which is priority 0. Logs show `shown` as arguments.

    The message names the queue as the worker knows it: if the worker dies, the message is returned by that name.
    """
    task_id = str(uuid.uuid4())
    body = json.dumps([list(arguments), {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {**_headers(task, task_id, shown), **(headers or {})},
            "properties": _properties(task_id, queue),
        }
    ).encode()


def _headers(task: str, task_id: str, arguments_text: str) -> dict[str, Any]:
    unset = dict.fromkeys(("shadow", "eta", "expires", "group", "group_index", "parent_id"))
    return {
        **unset,
        "lang": "py",
        "task": task,
        "id": task_id,
        "root_id": task_id,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": arguments_text,
        "kwargsrepr": "{}",
        "origin": "luminet",
        "ignore_result": True,
    }


def _properties(task_id: str, queue: str) -> dict[str, Any]:
    return {
        "correlation_id": task_id,
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }
