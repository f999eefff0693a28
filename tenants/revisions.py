"""The check of an expected revision, the same for everything that has one."""

from tenants.errors import StaleRevision

Expected = frozenset[int] | None


def revision_check(actual: int, expected: Expected) -> None:
    """Raise StaleRevision unless the actual revision is expected. `expected` None accepts any."""
    if expected is not None and actual not in expected:
        expected_numbers = " or ".join(str(revision) for revision in sorted(expected)) or "one this resource never has"
        raise StaleRevision(expected=expected_numbers, actual=actual)
