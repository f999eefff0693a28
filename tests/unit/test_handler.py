from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.utils.module_loading import import_string

from controlplane.web.handler import OneThreadHandler


def test_the_middleware_is_one_synchronous_chain() -> None:
    assert not iscoroutinefunction(OneThreadHandler()._middleware_chain)  # type: ignore[attr-defined]


def test_no_middleware_asks_for_the_event_loop() -> None:
    """One that only knows how to be asynchronous would bring the thread hops back."""
    assert all(getattr(import_string(name), "sync_capable", True) for name in settings.MIDDLEWARE)
