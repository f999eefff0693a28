"""Fixtures every kind of test may use. The servers behind them are real and start when first asked for."""

import pytest


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: str) -> None:
    """pytest-django makes its test database after this: so there is a server to make it on."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser last, in whatever order files are named: its event loop runs on until the session ends."""
    items.sort(key=lambda item: "tests/e2e" in item.nodeid)
