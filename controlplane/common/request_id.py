"""One id for everything a request sets off: web, Celery tasks, agents and every log line in between."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

REQUEST_ID_HEADER = "x-request-id"
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str | None] = ContextVar("luminet_request_id", default=None)


def request_id_accept(offered: str | None) -> str:
    """The caller's id when it is harmless in logs and headers, else a fresh one."""
    if offered and _ACCEPTABLE.fullmatch(offered):
        return offered
    return uuid.uuid4().hex


def request_id_current() -> str | None:
    return _current.get()


def request_id_set(request_id: str | None) -> None:
    """For a thread that does one thing after the other, such as a worker's: until it is set again."""
    _current.set(request_id)


@contextmanager
def request_id_bound(request_id: str) -> Iterator[None]:
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)
