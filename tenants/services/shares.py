"""Enforce the bound on the reserved shares of each pool, for publishes, new namespaces and moves."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from engine_agent.contracts.words import listed
from tenants.actor import Actor
from tenants.errors import FieldProblem, SharesExceeded
from tenants.levels import FLEET, namespaces_below
from tenants.locks import groups_lock
from tenants.models import PolicyLevel
from tenants.shares import PROMISED_AT_MOST, Holding, IsOwn, Promise, heaviest_promise, holdings

NAMED_AT_MOST = 5


_later: ContextVar[set[int] | None] = ContextVar("luminet_groups_judged_later", default=None)


@contextmanager
def shares_judged_last(*, actor: Actor) -> Iterator[None]:
    """Check the shares once after several changes, instead of after each."""
    pending: set[int] = set()
    token = _later.set(pending)
    try:
        yield
    finally:
        _later.reset(token)
    groups_check(pending, actor=actor)


def groups_check(group_ids: Iterable[int], *, actor: Actor) -> None:
    """Check reserved shares after the write and before the commit.

    The groups' locks prevent two transactions from both taking the rest.
    """
    ids = sorted(set(group_ids))
    if (pending := _later.get()) is not None:
        pending.update(ids)
        return
    groups_lock(ids)
    for group_id in ids:
        heaviest = heaviest_promise(group_holdings(group_id), own_holdings(actor))
        if heaviest.is_too_much:
            raise SharesExceeded([shares_problem(heaviest, actor=actor)])


def own_holdings(actor: Actor) -> IsOwn | None:
    """Return which reservations an actor may read exactly, or None for all."""
    if actor.is_operator:
        return None
    return lambda holding: holding.organisation_id == actor.organisation_id and actor.may_see(holding.namespace_id)


def group_holdings(group_id: int) -> Iterator[Holding]:
    fleet = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first() or {}
    below = namespaces_below(FLEET, group_ids={group_id})
    return holdings(below, lambda descendant: (fleet, descendant.organisation_policy, descendant.namespace_policy))


def shares_problem(promise: Promise, *, actor: Actor) -> FieldProblem:
    """Return the error for a promise above the bound.

    Operators read the holders of all shares, an organisation only its own, and a bound key only those of its
    namespaces.
    """
    is_own = own_holdings(actor)
    visible = [(holding, share) for holding, share in promise.holders if is_own is None or is_own(holding)]
    holders = listed([f"{holding.name} {share:.1%}" for holding, share in visible], NAMED_AT_MOST)
    may_read_model = actor.is_operator or any(promise.model in holding.by_model for holding, _ in visible)
    model = f" for the model {promise.model}" if promise.model and may_read_model else ""
    if actor.is_operator:
        total = f"reservations and pins would add up to {promise.total:.1%} of each pool{model}"
        return FieldProblem("policy.reserved_share", f"{total}, {PROMISED_AT_MOST:.0%} is the most: {holders}")
    return FieldProblem(
        "policy.reserved_share",
        f"there is not that much left to promise{model}; you would hold {holders}: ask your operator for more",
    )
