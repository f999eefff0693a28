"""Fixtures every kind of test may use. The servers behind them are real and start when first asked for."""

import pytest


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: str) -> None:
    """pytest-django makes its test database after this: so there is a server to make it on."""
