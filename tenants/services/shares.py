"""Keeps what is promised of each pool below its bound, whoever promises: publishes, new namespaces, moves."""

from collections.abc import Iterable, Iterator

from tenants.actor import Actor
from tenants.errors import FieldProblem, SharesExceeded
from tenants.levels import FLEET, namespaces_below
from tenants.models import AgentGroup, PolicyLevel
from tenants.shares import PROMISED_AT_MOST, Holding, Promise, heaviest_promise, holding

NAMED_AT_MOST = 5


def groups_check(group_ids: Iterable[int], *, actor: Actor) -> None:
    """Judged after writing and before commit, under the groups' locks: two at once cannot both take the rest."""
    ids = sorted(set(group_ids))
    list(AgentGroup.objects.select_for_update().filter(pk__in=ids).order_by("pk"))
    for group_id in ids:
        heaviest = group_promise(group_id)
        if heaviest.is_too_much:
            raise SharesExceeded([shares_problem(heaviest, actor=actor)])


def group_promise(group_id: int) -> Promise:
    """The heaviest sum as it stands in this transaction."""
    return heaviest_promise(group_holdings(group_id))


def group_holdings(group_id: int) -> Iterator[Holding]:
    fleet = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first() or {}
    for below in namespaces_below(FLEET, group_ids={group_id}):
        chain = (fleet, below.organisation_policy, below.namespace_policy)
        yield holding(below, chain)


def shares_problem(promise: Promise, *, actor: Actor) -> FieldProblem:
    """Operators read who holds what. An organisation reads of its own holdings only."""
    visible = [
        (held, share)
        for held, share in promise.holders
        if actor.is_operator or held.organisation_id == actor.organisation_id
    ]
    named = ", ".join(f"{held.name} {share:.1%}" for held, share in visible[:NAMED_AT_MOST])
    more = f" and {len(visible) - NAMED_AT_MOST} more" if len(visible) > NAMED_AT_MOST else ""
    model = f" for the model {promise.model}" if promise.model else ""
    if actor.is_operator:
        total = f"reservations and pins would add up to {promise.total:.1%} of each pool{model}"
        return FieldProblem("policy.reserved_share", f"{total}, {PROMISED_AT_MOST:.0%} is the most: {named}{more}")
    return FieldProblem(
        "policy.reserved_share",
        f"there is not that much left to promise{model}; you would hold {named}{more}: ask your operator for more",
    )
