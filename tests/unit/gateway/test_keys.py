"""Whose a request is: the key decides, and whoever has a wrong one learns nothing."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway import keys
from engine_agent.gateway.keys import Caller, caller_of
from engine_agent.gateway.tables import Namespace, Tables, tables_empty, tables_read
from engine_agent.http.errors import ApiError
from tests.gateway.snapshots import (
    BOUND,
    CHECK,
    EXPIRED,
    FOREIGN,
    KEY,
    READING,
    SLEEPING,
    gateway_snapshot,
    key,
    namespace,
    organisation,
    tenants,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
EMPTY = tables_empty()
TABLES = tables_read(gateway_snapshot(tenants()), EMPTY)
RULES = TABLES.organisations["1"].namespaces["default"].rules


def bearer(name: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}", **{key.replace("_", "-"): value for key, value in headers.items()}}


def called(headers: Mapping[str, str], tables: Tables = TABLES, *, now: float = NOW) -> Caller:
    return caller_of(tables, CHECK, headers, now=now)


def refused(headers: Mapping[str, str], tables: Tables = TABLES, *, now: float = NOW) -> ApiError:
    with pytest.raises(ApiError) as caught:
        called(headers, tables, now=now)
    return caught.value


def test_a_key_says_whose_the_request_is() -> None:
    caller = called(bearer(KEY))
    assert (caller.organisation.slug, caller.namespace.id, caller.namespace.slug) == ("acme", "11", "default")
    assert called(bearer(FOREIGN)).organisation.slug == "globex"


def test_a_caller_is_told_of_by_the_keys_public_id_and_nothing_of_its_secret() -> None:
    assert called(bearer(KEY)).key_id == "lk_acme"  # as its entry in the snapshot is called
    assert called(bearer(FOREIGN)).key_id == "lk_globex"


def test_the_client_chooses_among_namespaces_of_its_own() -> None:
    assert called(bearer(KEY, x_luminet_namespace="batch")).namespace.id == "12"
    assert called(bearer(BOUND)).namespace.id == "12"


@pytest.mark.parametrize(
    "headers", [bearer(BOUND, x_luminet_namespace="default"), bearer(KEY, x_luminet_namespace="x")]
)
def test_a_namespace_that_is_not_the_keys_is_as_one_that_is_not_there(headers: dict[str, str]) -> None:
    error = refused(headers)
    assert (error.status, error.code) == (404, "unknown_namespace")


def test_no_organisation_reaches_anothers_namespace_by_its_name() -> None:
    only = tables_read(gateway_snapshot(tenants(), namespace("22", "2", "secret")), tables_empty())
    there, nowhere = (refused(bearer(KEY, x_luminet_namespace=name), only) for name in ("secret", "hidden"))
    assert there.message.replace("secret", "hidden") == nowhere.message
    assert (there.status, there.code) == (nowhere.status, nowhere.code)


@pytest.mark.parametrize("name", ["lk_unheard_of", EXPIRED, "ké", f"{KEY} x", "*"])
def test_keys_that_are_unknown_expired_or_nonsense_get_one_answer(name: str) -> None:
    error = refused(bearer(name))
    assert (error.status, error.code, error.message) == (401, "invalid_api_key", "The API key is not valid here.")
    assert error.headers == {"www-authenticate": "Bearer"}


def work(name: str, tables: Tables = TABLES) -> list[tuple[str, int]]:
    """What is done in this module to find out whose a key is: every instruction, in order."""
    done: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_filename == keys.__file__:
            done.append((frame.f_code.co_qualname, frame.f_lasti))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        refused(bearer(name), tables)
    finally:
        sys.settrace(before)
    return done


def test_a_key_that_is_unknown_revoked_or_expired_costs_the_very_same_instructions() -> None:
    """Or how long the answer takes would tell that there was such a key."""
    revoked = tables_read(
        gateway_snapshot({name: one for name, one in tenants().items() if name != f"key/{KEY}"}), EMPTY
    )
    expired = work(EXPIRED)
    assert expired == work("lk_none") == work(KEY, revoked)
    assert {name for name, _ in expired} >= {"caller_of", "_key", "key_digest", "_unknown"}
    assert expired != work(SLEEPING)  # whoever has a key of it may know that it is suspended


def test_a_key_is_good_until_the_moment_it_expires() -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert called(bearer(EXPIRED), now=until - 0.001).organisation.slug == "acme"
    assert refused(bearer(EXPIRED), now=until).status == 401


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer"}, {"authorization": "Bearer   "}, {"authorization": "Basic x"}]
)
def test_who_brings_no_key_is_told_how(headers: dict[str, str]) -> None:
    error = refused(headers)
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert "authorization: Bearer" in error.message


def test_a_key_for_other_things_infers_nothing() -> None:
    assert (refused(bearer(READING)).status, refused(bearer(READING)).code) == (403, "missing_scope")


def test_a_suspended_organisation_is_told_so() -> None:
    assert (refused(bearer(SLEEPING)).status, refused(bearer(SLEEPING)).code) == (403, "suspended")


def test_a_key_for_several_namespaces_without_a_default_must_say_which() -> None:
    entries = organisation("1", "acme") | namespace("11", "1", "a") | namespace("12", "1", "b") | key(KEY, "1")
    error = refused(bearer(KEY), tables_read(gateway_snapshot(entries), tables_empty()))
    assert (error.status, error.code, error.param) == (400, "namespace_required", "x-luminet-namespace")
    assert "a, b" in error.message


class Counting(dict[str, Namespace]):
    """Namespaces that say how many of them were looked at one after the other."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for one in super().__iter__():
            self.read += 1
            yield one

    def items(self) -> Any:
        return [(one, self[one]) for one in self]

    def values(self) -> Any:
        return (self[one] for one in self)


@pytest.mark.parametrize("headers", [bearer(KEY), bearer(BOUND), bearer(BOUND, x_luminet_namespace="batch")])
def test_a_request_costs_no_look_at_every_namespace_of_its_organisation(headers: dict[str, str]) -> None:
    acme = TABLES.organisations["1"]
    many = Counting({f"n{number}": Namespace(f"n{number}", f"n{number}", 1, RULES) for number in range(1_000)})
    many.update(acme.namespaces)
    tables = replace(TABLES, organisations={**TABLES.organisations, "1": replace(acme, namespaces=many)})
    assert called(headers, tables).namespace == called(headers).namespace
    assert many.read == 0


def test_a_key_for_very_many_namespaces_is_told_some_of_them() -> None:
    many = {name: entry for number in range(50) for name, entry in namespace(f"{number}", "1", f"n{number}").items()}
    error = refused(bearer(KEY), tables_read(gateway_snapshot(organisation("1", "acme"), many, key(KEY, "1")), EMPTY))
    assert (error.code, len(re.findall(r"n\d+", error.message))) == ("namespace_required", 10)


def test_a_key_whose_namespaces_are_served_elsewhere_is_good_for_nothing_here() -> None:
    entries = organisation("1", "acme") | namespace("11", "1", "default") | key(KEY, "1", [])
    error = refused(bearer(KEY), tables_read(gateway_snapshot(entries), tables_empty()))
    assert (error.status, error.code) == (403, "no_namespace")


@given(st.text(st.characters(max_codepoint=255), max_size=50), st.text(st.characters(max_codepoint=255), max_size=50))
def test_no_header_makes_it_fail(authorization: str, asked: str) -> None:
    for headers in ({"authorization": authorization}, bearer(KEY, x_luminet_namespace=asked)):
        problem = None
        try:
            called(headers)
        except ApiError as error:
            problem = error
        assert problem is None or problem.status in (401, 404)
        assert problem is None or re.fullmatch(r"[\x20-\x7e]*", problem.message)
