"""Fixtures every kind of test may use. The servers behind them are real and start when first asked for."""

import logging
from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

NOT_TRUNCATED = {
    "audit_is_not_truncated": "tenants_auditrecord",
    "revisions_are_not_truncated": "tenants_policyrevision",
}


@pytest.fixture(autouse=True)
def logs_go_where_they_went() -> Iterator[None]:
    """Whoever calls a command here has it set up logging for this process: to what was captured for that test alone."""
    root = logging.getLogger()
    before, level = set(root.handlers), root.level
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - before:
        if type(handler) is logging.StreamHandler:  # pytest's own are of other kinds
            root.removeHandler(handler)
    for handler in before - set(root.handlers):
        if type(handler) is logging.StreamHandler:
            root.addHandler(handler)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: str) -> None:
    """pytest-django makes its test database after this: so there is a server to make it on."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Tests with transactions of their own are cleaned up with TRUNCATE, which the triggers of 0003 would refuse."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for trigger, table in NOT_TRUNCATED.items():
            cursor.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {table}")
