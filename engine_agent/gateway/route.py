"""Which engine gets a request. Pure: it reads tables and numbers, counts shares, and sends nothing.

An engine is asked that serves the model, takes requests and can do the format. While a policy is tried, the engines
that try it get exactly their share of the requests, whatever lies in whose cache. Of what is left, the least loaded.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from engine_agent.gateway.tables import Engine, Formats, Namespace, Organisation, Split, Tables

STEP_SECONDS = 0.05  # an engine that takes so much longer to look up from its work counts as one request busier
MOST_MEASURED = 100
MOST_COUNTED = 100_000  # namespaces' requests of splits


class RouteError(Exception):
    """Why a request can go nowhere."""


class UnknownModel(RouteError):
    pass


class UnprovenFormat(RouteError):
    """A format that has not passed the quality suite on this model."""

    def __init__(self, kv_dtype: str, why: str, alternatives: Sequence[str]) -> None:
        self.kv_dtype, self.why, self.alternatives = kv_dtype, why, alternatives
        super().__init__(f"{kv_dtype}: {why}")


class UnservedFormat(RouteError):
    """A format that no engine of this model can do."""

    def __init__(self, kv_dtype: str, alternatives: Sequence[str]) -> None:
        self.kv_dtype, self.alternatives = kv_dtype, alternatives
        super().__init__(kv_dtype)


@dataclass(frozen=True, slots=True)
class Wish:
    organisation: Organisation
    namespace: Namespace
    model: str
    kv_dtype: str | None  # asked for; None: the policy's

    @property
    def formats(self) -> Formats:
        return self.namespace.rules.of(self.model)


@dataclass(frozen=True, slots=True)
class Standing:
    """What this gateway knows of an engine at this moment."""

    is_reachable: bool = True
    in_flight: int = 0  # requests of this gateway's
    look_seconds: float = 0.0  # it took lately to say that it is well: it does so between two steps

    @property
    def load(self) -> int:
        return self.in_flight + min(MOST_MEASURED, int(self.look_seconds / STEP_SECONDS))


def engines_able(tables: Tables, wish: Wish) -> list[Engine]:
    """Those that could serve it, also where they take none now. Raises a RouteError."""
    serving = [one for one in tables.engines.values() if wish.model in one.models]
    if not serving:
        raise UnknownModel(wish.model)
    wanted, refused = wish.kv_dtype or wish.formats.kv_dtype, tables.refused.get(wish.model, {})
    alternatives = [
        name for name in wish.formats.allowed if name not in refused and _done_by(serving, wish.model, name)
    ]
    if wanted in refused:
        raise UnprovenFormat(wanted, refused[wanted], alternatives)
    able = _done_by(serving, wish.model, wanted)
    if wish.kv_dtype is None:
        able += [one for one in serving if one not in able and _holds_older(one, tables, wish)]
    if not able:
        raise UnservedFormat(wanted, alternatives)
    return able


def _done_by(engines: Iterable[Engine], model: str, kv_dtype: str) -> list[Engine]:
    return [one for one in engines if kv_dtype in one.models[model].kv_dtypes]


def _holds_older(engine: Engine, tables: Tables, wish: Wish) -> bool:
    """We know the newest policy alone; who is not among those that try it goes on with the one before."""
    return any(engine.agent not in split.agents for split in splits_of(tables, wish))


def splits_of(tables: Tables, wish: Wish) -> list[Split]:
    found = (*wish.organisation.splits, *tables.splits)
    return [one for one in found if one.namespaces is None or wish.namespace.id in one.namespaces]


class Router:
    """Remembers whose turn it is, and how many requests each split has seen."""

    def __init__(self) -> None:
        self._turns = itertools.count()
        self._seen: dict[tuple[str, str], int] = defaultdict(int)

    def groups(self, tables: Tables, wish: Wish) -> list[list[Engine]]:
        """Where one request may go, an earlier group before a later one. Called once for each request, which counts
        it. Raises a RouteError.
        """
        sides = [[one for one in engines_able(tables, wish) if one.is_open]]
        for split in splits_of(tables, wish):
            sides = [*self._sides(split, wish.namespace.id, sides[0]), *sides[1:]]
        return [side for side in sides if side]

    def pick(
        self, groups: Sequence[Sequence[Engine]], standing: Callable[[str], Standing], tried: Collection[str]
    ) -> Engine | None:
        """The least loaded one that was not tried. One that seemed unreachable a moment ago is better than none."""
        left = [[(one, standing(one.agent)) for one in group if one.agent not in tried] for group in groups]
        reachable = [[pair for pair in group if pair[1].is_reachable] for group in left]
        found = next((group for group in (*reachable, *left) if group), None)
        if found is None:
            return None
        turn = next(self._turns) % len(found)  # those that are alike take turns
        return min((*found[turn:], *found[:turn]), key=lambda pair: pair[1].load)[0]

    def _sides(self, split: Split, namespace: str, engines: list[Engine]) -> list[list[Engine]]:
        trying = [one for one in engines if one.agent in split.agents]
        others = [one for one in engines if one.agent not in split.agents]
        if not trying or not others:
            return [engines]
        return [trying, others] if self._is_for_trying(split, namespace) else [others, trying]

    def _is_for_trying(self, split: Split, namespace: str) -> bool:
        """Spread evenly: of any n requests in a row, n times the share, to within one. Where that begins differs from
        one namespace to the next, or those with few requests would never be tried on.
        """
        if len(self._seen) > MOST_COUNTED:
            self._seen.clear()
        self._seen[split.id, namespace] += 1
        seen, began = self._seen[split.id, namespace], _phase(split.id, namespace)
        return _whole(seen * split.share + began) > _whole((seen - 1) * split.share + began)


def _phase(split: str, namespace: str) -> float:
    return int.from_bytes(sha256(f"{split}/{namespace}".encode()).digest()[:4]) / 2**32


def _whole(count: float) -> int:
    return math.floor(count + 1e-9)  # 0.1 · 30 is a little more than 3, 0.29 · 100 a little less than 29
