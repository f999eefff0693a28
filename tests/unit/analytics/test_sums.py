"""Whose numbers a scope lets through."""

import pytest

from controlplane.analytics.sums import Scope


@pytest.mark.parametrize(
    ("bound", "seen"), [(None, {2}), (frozenset({2, 3}), {2}), (frozenset({3}), set()), (frozenset(), set())]
)
def test_a_key_sees_a_namespace_only_where_it_is_bound_to_it(bound: frozenset[int] | None, seen: set[int]) -> None:
    assert Scope(1, 2, namespaces=bound).chosen == frozenset(seen)
