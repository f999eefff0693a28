"""Fixtures every kind of test may use. The servers behind them are real and start when first asked for."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import TransactionTestCase

from tests.database.flush import written_tables_empty


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


@pytest.fixture(scope="session", autouse=True)
def static_files_are_found_once() -> Iterator[None]:
    """WhiteNoise looks at every static file for every test client: a tenth of the time of tests with requests."""
    from whitenoise import WhiteNoise

    look, found = WhiteNoise.add_files, {}

    def add_files(self: Any, root: str, prefix: str | None = None) -> None:
        if (root, prefix) not in found:
            look(self, root, prefix)
            found[root, prefix] = dict(self.files)
        self.files |= found[root, prefix]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoise, "add_files", add_files)
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: str) -> None:
    """pytest-django makes its test database after this: so there is a server to make it on."""


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Use the database that the server brings along; both go with the run."""
    return True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Empty the tables that were written, and only these, after tests with transactions of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: written_tables_empty())
        yield
