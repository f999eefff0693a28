"""Which failures of the database are told as what."""

from unittest.mock import Mock

import psycopg
import pytest
from django.db import OperationalError
from psycopg import errors

from controlplane.api.problems import HANDLERS
from tests.web.api import said


def answered(cause: Exception | None) -> tuple[int, str, str]:
    error = OperationalError("…")
    error.__cause__ = cause
    answer = HANDLERS[OperationalError](Mock(), error)
    return answer.status_code, said(answer)["type"].rpartition("-")[2], answer["Retry-After"]


@pytest.mark.parametrize("kind", [errors.LockNotAvailable, errors.DeadlockDetected, errors.QueryCanceled])
def test_who_had_to_wait_for_others_is_told_so(kind: type[Exception]) -> None:
    assert answered(kind("…")) == (503, "busy", "1")


AWAY = [psycopg.OperationalError("server closed the connection"), errors.AdminShutdown(), None]


@pytest.mark.parametrize("cause", AWAY)
def test_a_database_that_is_away_is_told_as_that(cause: Exception | None) -> None:
    assert answered(cause) == (503, "unavailable", "5")
