"""The context that the checks of one run share: the place, and the facts that several checks need."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial, wraps
from threading import Lock, Thread
from typing import Any, TypeVar

from controlplane.doctor.finding import NotExamined
from controlplane.doctor.place import Place
from controlplane.settings.env import Environment

T = TypeVar("T")


class Context:
    def __init__(self, installation: Place, token: str = "") -> None:
        self.place = installation
        self.token = token
        self.lock = Lock()
        self.facts: dict[Callable[..., Any], Future[Any]] = {}

    @property
    def environment(self) -> Environment:
        if self.place.environment is None:
            raise NotExamined("settings cannot be read")
        return self.place.environment


def shared(collect: Callable[[Context], T]) -> Callable[[Context], T]:
    """Cache a fact: the first check that needs it collects it; others wait for the same result or exception."""

    @wraps(collect)
    def fact(context: Context) -> T:
        with context.lock:
            is_first = collect not in context.facts
            future: Future[T] = context.facts.setdefault(collect, Future())
        if is_first:
            settle(future, partial(collect, context))
        return future.result()

    return fact


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run the work in a daemon thread: a hanging library call must not keep the command from ending."""
    future: Future[T] = Future()
    Thread(target=settle, args=(future, work), daemon=True).start()
    return future


def settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
