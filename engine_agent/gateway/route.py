"""Chooses the engine for a request. Pure: it reads tables and numbers, counts shares, and sends nothing.

Candidates serve the model, take requests and support the KV format. During a rollout, the engines that try the new
policy get exactly their share of the requests, wherever prompts are cached. Among the remaining candidates the one with
the lowest cost wins (`scoring.py`); for a request without hints, the less loaded of two.
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
Decided = MutableMapping[str, bool]  # for one request: whether it goes to the agents of each split
MOST_COUNTED = 100_000  # pairs of split and namespace with a count


class RouteError(Exception):
    """No engine can serve the request."""


class UnknownModel(RouteError):
    pass


class UnprovenFormat(RouteError):
    """A format that has not passed the quality suite on this model."""

    def __init__(self, kv_dtype: str, why: str, alternatives: Sequence[str]) -> None:
        self.kv_dtype, self.why, self.alternatives = kv_dtype, why, alternatives
        super().__init__(f"{kv_dtype}: {why}")


class UnservedFormat(RouteError):
    """A format that no engine of this model supports."""

    def __init__(self, kv_dtype: str, alternatives: Sequence[str]) -> None:
        self.kv_dtype, self.alternatives = kv_dtype, alternatives
        super().__init__(kv_dtype)


@dataclass(frozen=True, slots=True)
class Wish:
    organisation: Organisation
    namespace: Namespace
    model: str
    kv_dtype: str | None  # chosen by the request; None: the policy's

    @property
    def formats(self) -> Formats:
        return self.namespace.rules.of(self.model)


def engines_able(tables: Tables, request: Wish) -> list[Engine]:
    """Return the engines that could serve it, even if they take no requests now, or raise RouteError."""
    serving = [engine for engine in tables.engines.values() if request.model in engine.models]
    if not serving:
        raise UnknownModel(request.model)
    kv_dtype, refused = request.kv_dtype or request.formats.kv_dtype, tables.refused.get(request.model, {})
    alternatives = [
        name for name in request.formats.allowed if name not in refused and _done_by(serving, request.model, name)
    ]
    if kv_dtype in refused:
        raise UnprovenFormat(kv_dtype, refused[kv_dtype], alternatives)
    able = _done_by(serving, request.model, kv_dtype)
    if request.kv_dtype is None:
        able += [engine for engine in serving if engine not in able and _holds_older(engine, tables, request)]
    if not able:
        raise UnservedFormat(kv_dtype, alternatives)
    return able


def _done_by(engines: Iterable[Engine], model: str, kv_dtype: str) -> list[Engine]:
    return [engine for engine in engines if kv_dtype in engine.models[model].kv_dtypes]


def _holds_older(engine: Engine, tables: Tables, request: Wish) -> bool:
    """Return whether the engine may still apply the policy before the newest, because a split leaves it out."""
    return any(engine.agent not in split.agents for split in splits_of(tables, request))


def splits_of(tables: Tables, request: Wish) -> list[Split]:
    splits = (*request.organisation.splits, *tables.splits)
    return [split for split in splits if split.namespaces is None or request.namespace.id in split.namespaces]


class Router:
    """Chooses engines, and counts turns and the requests of each split."""

    def __init__(self, routing: Routing = "cache-aware", random: Random | None = None) -> None:
        self._routing, self._random = routing, random or Random()
        self._turns = itertools.count()
        self._seen: dict[tuple[str, str], int] = defaultdict(int)

    def groups(self, tables: Tables, request: Wish, decided: Decided | None = None) -> list[list[Engine]]:
        """Return the engines that a request may go to, in groups by preference, or raise RouteError. Counts the
        request for its splits, unless `decided` has an earlier decision, which then applies.
        """
        decisions: Decided = {} if decided is None else decided
        sides = [[engine for engine in engines_able(tables, request) if engine.is_open]]
        for split in splits_of(tables, request):
            sides = [*self._sides(split, request.namespace.id, sides[0], decisions), *sides[1:]]
        return [side for side in sides if side]

    def pick(
        self,
        groups: Groups,
        load_of: Callable[[str], Standing],
        tried: Collection[str],
        hints: Sight = BLIND,
        *,
        is_free: bool = False,
    ) -> Engine | None:
        """Return the best engine that was not tried; with `is_free`, one that has room at once. Failing engines come
        after healthy ones, and those that recently seemed unreachable come last. Never return a silent one.
        """
        untried = [
            [(engine, load_of(engine.agent)) for engine in group if engine.agent not in tried] for group in groups
        ]
        responsive = [[pair for pair in group if not pair[1].is_silent] for group in untried]
        preferred = [[pair for pair in group if pair[1].is_wanted] for group in responsive]
        reachable = [[pair for pair in group if pair[1].is_reachable] for group in responsive]
        usable = preferred if any(preferred) else reachable if any(reachable) else responsive
        candidates = next(
            (fitting for group in usable if (fitting := [pair for pair in group if not is_free or _is_free(pair)])),
            None,
        )
        return self._best(self._back(candidates), hints) if candidates else None

    def _back(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Drop returning engines at random, so that each gets its reduced share and no more. Shares are relative to
        the largest: if all engines return, no others can relieve them.
        """
        most = max(pair[1].share for pair in candidates)
        admitted = [
            pair for pair in candidates if pair[1].share >= most or self._random.random() * most < pair[1].share
        ]
        return admitted or candidates

    def _best(self, candidates: Sequence[Candidate], hints: Sight) -> Engine:
        turn = next(self._turns) % len(candidates)  # equal engines take turns
        in_turn = (*candidates[turn:], *candidates[:turn])
        if self._routing == "round-robin":
            return in_turn[0][0]
        if not hints.is_blind:
            return cheapest(in_turn, hints)
        # Take two at random: otherwise all gateways would choose the least loaded engine at the same moment.
        sampled_pair = (in_turn[0], *self._random.sample(in_turn[1:], min(1, len(in_turn) - 1)))
        return cheapest(sampled_pair, hints)

    def _sides(self, split: Split, namespace: str, engines: list[Engine], decided: Decided) -> list[list[Engine]]:
        trying = [engine for engine in engines if engine.agent in split.agents]
        remaining = [engine for engine in engines if engine.agent not in split.agents]
        if not trying or not remaining:
            return [engines]
        if split.id not in decided:
            decided[split.id] = self._is_for_trying(split, namespace)
        return [trying, remaining] if decided[split.id] else [remaining, trying]

    def _is_for_trying(self, split: Split, namespace: str) -> bool:
        """Return whether the request goes to the split's agents: of any n in a row, n times the share, to within one.
        Each namespace starts at a different phase, otherwise those with few requests would never go there.
        """
        if len(self._seen) > MOST_COUNTED:
            self._seen.clear()
        self._seen[split.id, namespace] += 1
        request_count, phase = self._seen[split.id, namespace], _phase(split.id, namespace)
        return _whole(request_count * split.share + phase) > _whole((request_count - 1) * split.share + phase)


def named(groups: Groups) -> Mapping[str, Engine]:
    """Return all engines of the groups, by agent."""
    return {engine.agent: engine for group in groups for engine in group}


def elsewhere_tokens(groups: Groups, load_of: Callable[[str], Standing], hints: Sight, chosen: str) -> int:
    """Return the longest match at another engine that could have served the request, if it is longer; else 0. Also 0
    if `chosen` reports no cache: it may be an older version, which rejects an identity with this field.
    """
    if chosen not in hints.matches:
        return 0
    other_agents = (engine.agent for group in groups for engine in group if engine.agent != chosen)
    longest = max((hints.matched(agent) for agent in other_agents if load_of(agent).is_reachable), default=0)
    return longest if longest > hints.matched(chosen) else 0


def _is_free(pair: Candidate) -> bool:
    return not pair[1].is_full


def _phase(split: str, namespace: str) -> float:
    return int.from_bytes(sha256(f"{split}/{namespace}".encode()).digest()[:4]) / 2**32


def _whole(count: float) -> int:
    return math.floor(count + 1e-9)  # 0.1 · 30 is a little more than 3, 0.29 · 100 a little less than 29
