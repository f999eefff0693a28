"""Passwords of the tests' servers, which nobody else can reach."""

POSTGRES_PASSWORD = "only-for-tests"
REDIS_PASSWORD = "only-for-tests"
