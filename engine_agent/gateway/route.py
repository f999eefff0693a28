"""Which engine gets a request. Pure: it reads tables and numbers, counts shares, and sends nothing.

An engine is asked that serves the model, takes requests and can do the format. While a policy is tried, the engines
that try it get exactly their share of the requests, whatever lies in whose cache. Of what is left, the one where the
answer costs least (`scoring.py`); where nothing is known of a request, the less loaded of two.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Literal

from engine_agent.gateway.scoring import BLIND, Candidate, Sight, cheapest
from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine, Formats, Namespace, Organisation, Split, Tables

Routing = Literal["cache-aware", "round-robin"]
Groups = Sequence[Sequence[Engine]]
Decided = MutableMapping[str, bool]  # of one request: by split, whether it is for those that try
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

    def __init__(self, routing: Routing = "cache-aware", random: Random | None = None) -> None:
        self._routing, self._random = routing, random or Random()
        self._turns = itertools.count()
        self._seen: dict[tuple[str, str], int] = defaultdict(int)

    def groups(self, tables: Tables, wish: Wish, decided: Decided | None = None) -> list[list[Engine]]:
        """Where one request may go, an earlier group before a later one. That counts the request, unless it was
        `decided` at an earlier look, which then holds. Raises a RouteError.
        """
        so_far: Decided = {} if decided is None else decided
        sides = [[one for one in engines_able(tables, wish) if one.is_open]]
        for split in splits_of(tables, wish):
            sides = [*self._sides(split, wish.namespace.id, sides[0], so_far), *sides[1:]]
        return [side for side in sides if side]

    def pick(
        self,
        groups: Groups,
        standing: Callable[[str], Standing],
        tried: Collection[str],
        sight: Sight = BLIND,
        *,
        is_free: bool = False,
    ) -> Engine | None:
        """The best one that was not tried; `is_free`: and has room at once. One that fails is better than one
        that seemed unreachable a moment ago, and that is better than none. One that is silent is none.
        """
        untried = [[(one, standing(one.agent)) for one in group if one.agent not in tried] for group in groups]
        left = [[pair for pair in group if not pair[1].is_silent] for group in untried]
        wanted = [[pair for pair in group if pair[1].is_wanted] for group in left]
        reachable = [[pair for pair in group if pair[1].is_reachable] for group in left]
        known = wanted if any(wanted) else reachable if any(reachable) else left
        found = next(
            (some for group in known if (some := [pair for pair in group if not is_free or _is_free(pair)])), None
        )
        return self._best(self._back(found), sight) if found else None

    def _back(self, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that come back get their share of what they would get, and no more. It is one beside the others': where
        all come back, nobody is there to spare them.
        """
        most = max(pair[1].share for pair in found)
        kept = [pair for pair in found if pair[1].share >= most or self._random.random() * most < pair[1].share]
        return kept or found

    def _best(self, found: Sequence[Candidate], sight: Sight) -> Engine:
        turn = next(self._turns) % len(found)  # those that are alike take turns
        in_turn = (*found[turn:], *found[:turn])
        if self._routing == "round-robin":
            return in_turn[0][0]
        if not sight.is_blind:
            return cheapest(in_turn, sight)
        # Of all, the least loaded would get what every gateway has at this moment.
        two = (in_turn[0], *self._random.sample(in_turn[1:], min(1, len(in_turn) - 1)))
        return cheapest(two, sight)

    def _sides(self, split: Split, namespace: str, engines: list[Engine], decided: Decided) -> list[list[Engine]]:
        trying = [one for one in engines if one.agent in split.agents]
        others = [one for one in engines if one.agent not in split.agents]
        if not trying or not others:
            return [engines]
        if split.id not in decided:
            decided[split.id] = self._is_for_trying(split, namespace)
        return [trying, others] if decided[split.id] else [others, trying]

    def _is_for_trying(self, split: Split, namespace: str) -> bool:
        """Spread evenly: of any n requests in a row, n times the share, to within one. Where that begins differs from
        one namespace to the next, or those with few requests would never be tried on.
        """
        if len(self._seen) > MOST_COUNTED:
            self._seen.clear()
        self._seen[split.id, namespace] += 1
        seen, began = self._seen[split.id, namespace], _phase(split.id, namespace)
        return _whole(seen * split.share + began) > _whole((seen - 1) * split.share + began)


def named(groups: Groups) -> Mapping[str, Engine]:
    """All of them, by agent."""
    return {one.agent: one for group in groups for one in group}


def elsewhere_tokens(groups: Groups, standing: Callable[[str], Standing], sight: Sight, chosen: str) -> int:
    """The longest match at another engine that could have served the request, where it is longer; else 0. So it is for
    an engine that tells nothing of what it holds: it may be of before this was told, and believe no identity with it.
    """
    if chosen not in sight.matches:
        return 0
    others = (one.agent for group in groups for one in group if one.agent != chosen)
    longest = max((sight.matched(agent) for agent in others if standing(agent).is_reachable), default=0)
    return longest if longest > sight.matched(chosen) else 0


def _is_free(pair: Candidate) -> bool:
    return not pair[1].is_full


def _phase(split: str, namespace: str) -> float:
    return int.from_bytes(sha256(f"{split}/{namespace}".encode()).digest()[:4]) / 2**32


def _whole(count: float) -> int:
    return math.floor(count + 1e-9)  # 0.1 · 30 is a little more than 3, 0.29 · 100 a little less than 29
