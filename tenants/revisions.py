"""Comparing what a caller has seen with what is there: the same rule for everything that has a revision."""

from tenants.errors import StaleRevision

Expected = frozenset[int] | None


def revision_check(actual: int, expected: Expected) -> None:
    """`expected` None means whatever is there; else the actual revision must be among them."""
    if expected is not None and actual not in expected:
        named = " or ".join(str(one) for one in sorted(expected)) or "one this resource never has"
        raise StaleRevision(expected=named, actual=actual)
