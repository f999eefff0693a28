"""The share of each agent's pool that is reserved, and for which namespaces. No I/O."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenants.policy import Below, Values, effective_values, models_naming

PROMISED_AT_MOST = 0.9  # of each pool: the rest serves all other namespaces, and eviction
BAND = 0.1  # others' reservations are rounded up to steps of this for actors who may not read them
TOLERANCE = 1e-9
IsOwn = Callable[["Holding"], bool]
PROMISES = frozenset({"reserved_share", "pin_share"})


@dataclass(frozen=True, slots=True)
class Holding:
    """One namespace's reserved share, of reservation and pins, in general and for models with their own values."""

    organisation_id: int
    organisation: str
    namespace_id: int
    namespace: str
    general: float
    by_model: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.organisation}/{self.namespace}"


@dataclass(frozen=True, slots=True)
class Promise:
    """The sum for one model (None: any without its own values), largest holders first."""

    model: str | None
    total: float
    holders: tuple[tuple[Holding, float], ...]

    @property
    def is_too_much(self) -> bool:
        return self.total > PROMISED_AT_MOST + TOLERANCE


def promised(values: Values) -> float:
    return float(values["reserved_share"] + values["pin_share"])


def is_promised_something(chain: Sequence[Values]) -> bool:
    """Return whether these levels reserve a share, in general or for one model."""
    general, by_model = _shares(chain)
    return general > 0 or any(share > 0 for share in by_model.values())


def holdings(below: Iterable[Below], chain_of: Callable[[Below], Sequence[Values]]) -> Iterator[Holding]:
    """Yield each namespace's reserved share, computed once for each combination of levels."""
    shares_by_combination: dict[Hashable, tuple[float, dict[str, float]]] = {}
    for descendant in below:
        shares = shares_by_combination.get(descendant.combination)
        if shares is None:
            shares = shares_by_combination[descendant.combination] = _shares(chain_of(descendant))
        yield Holding(
            descendant.organisation_id, descendant.organisation, descendant.namespace_id, descendant.namespace, *shares
        )


def _shares(chain: Sequence[Values]) -> tuple[float, dict[str, float]]:
    by_model = {model: promised(effective_values(chain, model)) for model in models_naming(chain, PROMISES)}
    return promised(effective_values(chain)), by_model


def heaviest_promise(holdings: Iterable[Holding], is_own: IsOwn | None = None) -> Promise:
    """Return the sum of the model with the largest reserved share: if it fits, all fit.

    With `is_own` the sum of all other namespaces is rounded up to a whole band: an actor who tries shares until one is
    refused learns only that band.
    """
    all_holdings = list(holdings)
    if is_own is None:
        total, sums = _sums(all_holdings)
    else:
        total, sums = _sums([holding for holding in all_holdings if is_own(holding)])
        other_total, other_sums = _sums([holding for holding in all_holdings if not is_own(holding)])
        sums = {model: sums[model] + _band(other_sums[model]) for model in {*sums, *other_sums}}
        total += _band(other_total)
    heaviest = max(sums, key=lambda model: sums[model], default=None)
    if heaviest is None or sums[heaviest] <= total:
        return Promise(None, total, _holders((holding, holding.general) for holding in all_holdings))
    shares = ((holding, holding.by_model.get(heaviest, holding.general)) for holding in all_holdings)
    return Promise(heaviest, sums[heaviest], _holders(shares))


def _sums(holdings: Sequence[Holding]) -> tuple[float, dict[str, float]]:
    """Return the general sum, and the sum for each model with its own values; other models have the general sum."""
    total = sum(holding.general for holding in holdings)
    sums: dict[str, float] = defaultdict(lambda: total)
    for holding in holdings:
        for model, share in holding.by_model.items():
            sums[model] += share - holding.general
    return total, sums


def _band(share: float) -> float:
    return math.ceil(share / BAND - TOLERANCE) * BAND


def _holders(shares: Iterable[tuple[Holding, float]]) -> tuple[tuple[Holding, float], ...]:
    holding_some = [(holding, share) for holding, share in shares if share > 0]
    return tuple(sorted(holding_some, key=lambda pair: (-pair[1], pair[0].name)))
