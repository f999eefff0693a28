"""What a request may do is said by what is held now, and costs nothing to ask where nothing has changed."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine_agent.gateway.held import Held
from engine_agent.gateway.keys import Caller, caller_of
from engine_agent.gateway.permit import Permit
from engine_agent.gateway.route import Decided, Groups, Router, Wish
from engine_agent.gateway.tables import Tables, tables_read
from engine_agent.http.errors import ApiError
from tests.gateway.snapshots import CHECK, KEY, MODEL, Entries, gateway_snapshot, key, route, split, tenants

EXPIRES_AT, EXPIRES = 1_767_225_600.0, "2026-01-01T00:00:00Z"


class Request:
    """One that brings this key, and what is held meanwhile."""

    def __init__(self, *extra: Entries) -> None:
        self.held, self.router, self.now = Held(), Router(), EXPIRES_AT - 60
        self.asked: Counter[str] = Counter()
        self.hold(tenants(), route("agent-1"), route("agent-2"), *extra)
        self.permit = self.new()

    def new(self) -> Permit:
        tables = self.held.tables
        return Permit(
            self.held,
            tables,
            self._recognise(tables),
            recognise=self._recognise,
            route=self._route,
            now=lambda: self.now,
        )

    def hold(self, *entries: Entries) -> None:
        self.held.hold(tables_read(gateway_snapshot(*entries), self.held.tables))

    def agents(self) -> list[list[str]]:
        return [[one.agent for one in group] for group in self.permit.groups]

    def _recognise(self, tables: Tables) -> Caller:
        self.asked["caller"] += 1
        return caller_of(tables, CHECK, {"authorization": f"Bearer {KEY}"}, now=self.now)

    def _route(self, tables: Tables, caller: Caller, decided: Decided) -> Groups:
        self.asked["route"] += 1
        return self.router.groups(tables, Wish(caller.organisation, caller.namespace, MODEL, None), decided)


def without(name: str) -> Entries:
    return {key: entry for key, entry in tenants().items() if key != name}


def suspended() -> Entries:
    told = tenants()
    return {**told, "org/1": {**told["org/1"], "state": "suspended"}}


def refused(deed: Callable[[], Any]) -> tuple[int, str | None]:
    with pytest.raises(ApiError) as caught:
        deed()
    return caught.value.status, caught.value.code


def test_where_nothing_has_changed_nothing_is_looked_up() -> None:
    one = Request()
    before, groups = Counter(one.asked), one.permit.groups
    for _ in range(3):
        one.permit.check()
        one.permit.renew()
    assert one.asked == before
    assert one.permit.groups is groups


@pytest.mark.parametrize(
    ("entries", "expected"), [(without(f"key/{KEY}"), (401, "invalid_api_key")), (suspended(), (403, "suspended"))]
)
def test_a_key_that_is_revoked_and_an_organisation_that_is_suspended_end_it(
    entries: Entries, expected: tuple[int, str]
) -> None:
    one = Request()
    one.hold(entries, route("agent-1"))
    assert refused(one.permit.check) == expected
    assert refused(one.permit.renew) == expected


def test_a_key_that_expires_ends_it_without_any_word_from_anybody() -> None:
    one = Request(key(KEY, "1", expires_at=EXPIRES))
    one.now = EXPIRES_AT - 0.001
    one.permit.renew()
    one.now = EXPIRES_AT
    assert refused(one.permit.check) == (401, "invalid_api_key")
    assert refused(one.permit.renew) == (401, "invalid_api_key")


def test_a_gateway_that_was_revoked_lets_nobody_on() -> None:
    one = Request()
    one.held.is_revoked = True
    assert refused(one.permit.check) == (503, "revoked")


def test_engines_are_those_of_now() -> None:
    one = Request()
    assert one.agents() == [["agent-1", "agent-2"]]
    one.hold(tenants(), route("agent-1", state="draining"), route("agent-2"), route("agent-3"))
    one.permit.renew()
    assert one.agents() == [["agent-2", "agent-3"]]
    one.hold(tenants(), route("agent-1", state="draining"))
    one.permit.renew()
    assert one.agents() == []


def test_whether_it_may_go_on_is_found_out_without_looking_for_engines() -> None:
    one = Request()
    one.hold(tenants(), route("agent-2"))
    before = one.asked["route"]
    one.permit.check()
    assert one.asked["route"] == before
    one.permit.renew()
    assert (one.asked["route"], one.agents()) == (before + 1, [["agent-2"]])


def test_however_often_it_is_looked_at_a_split_counts_a_request_once() -> None:
    trying = split(["agent-2"], 0.5)
    one = Request(trying)
    sides = []
    for number in range(8):
        one.permit = one.new()
        sides.append(one.agents()[0][0])
        for looked in range(3):  # something else changes meanwhile
            one.hold(tenants(), route("agent-1"), route("agent-2"), route(f"agent-{3 + (number + looked) % 4}"), trying)
            one.permit.renew()
            assert one.agents()[0][0] == sides[-1]
        one.hold(tenants(), route("agent-1"), route("agent-2"), trying)
    assert sorted(sides) == ["agent-1"] * 4 + ["agent-2"] * 4
