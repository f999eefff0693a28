"""One id for everything that a request causes: in the web, Celery tasks, agents and their log lines."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

REQUEST_ID_HEADER = "x-request-id"
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str | None] = ContextVar("luminet_request_id", default=None)


def request_id_accept(offered: str | None) -> str:
    """Return the caller's id if it is safe in logs and headers, else a new one."""
    if offered and _ACCEPTABLE.fullmatch(offered):
        return offered
    return uuid.uuid4().hex


def request_id_current() -> str | None:
    return _current.get()


def request_id_set(request_id: str | None) -> None:
    """Set the id until the next call, for a thread that runs one task after the other, such as a worker's."""
    _current.set(request_id)


@contextmanager
def request_id_bound(request_id: str) -> Iterator[None]:
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)
