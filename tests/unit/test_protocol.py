import base64
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.contracts.protocol import (
    AgentKind,
    Change,
    Entry,
    HashMismatch,
    MalformedMessage,
    Policy,
    ProtocolError,
    Snapshot,
    canonical_json,
    change_apply,
    change_between,
    change_decode,
    change_encode,
    policy_hash,
    queue_name,
    snapshot_build,
    snapshot_decode,
    snapshot_encode,
)
from tests.support.case_names import case_name

POLICIES: list[Policy] = [{"ttl_seconds": seconds, "weight": 1.0} for seconds in (60, 300, 3600)]
TABLE = {policy_hash(policy): policy for policy in POLICIES}
HASHES = list(TABLE)
SECRET = base64.b64encode(b"\xa5" * 32).decode()
DIGEST = "ab" * 32


def org(one: str = "1", **more: Any) -> Entry:
    return {"org": one, "slug": f"org-{one}", "state": "active", "limits": {}} | more


def ns(of: str = "1", **more: Any) -> Entry:
    whole = {"org": of, "slug": "default", "epoch": 0, "key": SECRET, "revision": 1, "policy": HASHES[0]}
    return whole | more


def pin(of: str = "1", **more: Any) -> Entry:
    return {"org": of, "ns": "1", "name": "p", "model": "m", "kind": "prompt", "bytes": 7, "expires_at": None} | more


def api_key(of: str = "1", **more: Any) -> Entry:
    return {"org": of, "hash": DIGEST, "namespaces": None, "scopes": ["infer"], "expires_at": None} | more


def built(entries: dict[str, Entry], kind: AgentKind = "engine") -> Snapshot:
    return snapshot_build(kind, entries, TABLE)


FEW: dict[str, Entry] = {
    "org/1": org("1"),
    "org/2": org("2"),
    "ns/1": ns("1"),
    "ns/2": ns("2", policy=HASHES[1]),
    "pin/1": pin("1"),
}

ids = st.sampled_from(["1", "2", "3"])
text = st.text(min_size=1, max_size=4)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
namespaces = st.builds(
    ns,
    ids,
    slug=text,
    epoch=st.integers(0, 3),
    key=st.binary(min_size=32, max_size=32).map(lambda key: base64.b64encode(key).decode()),
    policy=st.sampled_from(HASHES),
)
COMMON: dict[str, st.SearchStrategy[Entry]] = {
    **{f"org/{one}": st.builds(org, st.just(one), limits=st.dictionaries(text, numbers, max_size=2)) for one in "123"},
    **{f"ns/{one}": namespaces for one in "1234"},
}
OPTIONAL: dict[AgentKind, dict[str, st.SearchStrategy[Entry]]] = {
    "engine": COMMON | {f"pin/{one}": st.builds(pin, ids, name=text) for one in "12"},
    "gateway": COMMON | {f"key/{one}": st.builds(api_key, ids, scopes=st.lists(text, max_size=2)) for one in "12"},
}


def snapshots_of(kind: AgentKind) -> st.SearchStrategy[Snapshot]:
    return st.fixed_dictionaries({}, optional=OPTIONAL[kind]).map(lambda entries: built(entries, kind))


snapshots = st.sampled_from(list(OPTIONAL)).flatmap(snapshots_of)
pairs = st.sampled_from(list(OPTIONAL)).flatmap(lambda kind: st.tuples(snapshots_of(kind), snapshots_of(kind)))


def as_told(snapshot: Snapshot) -> dict[str, Any]:
    return json.loads(snapshot_encode(snapshot))  # type: ignore[no-any-return]


def same(one: Snapshot, other: Snapshot) -> bool:
    """Equal in everything, not only by hash."""
    return one == other and one.buckets == other.buckets and snapshot_encode(one) == snapshot_encode(other)


# Hashes


@given(snapshots, st.randoms())
def test_the_order_of_entries_means_nothing(snapshot: Snapshot, random: Any) -> None:
    shuffled = list(snapshot.entries.items())
    random.shuffle(shuffled)
    assert same(built(dict(shuffled), snapshot.kind), snapshot)


@given(pairs)
def test_different_content_has_different_hashes(pair: tuple[Snapshot, Snapshot]) -> None:
    one, other = pair
    assert (one.hash == other.hash) is (canonical_json(one.entries) == canonical_json(other.entries))


def test_the_same_content_for_another_kind_of_agent_is_another_snapshot() -> None:
    entries = {"org/1": org()}
    assert built(entries, "engine").hash != built(entries, "gateway").hash


def test_numbers_that_python_calls_equal_are_told_apart() -> None:
    whole, fraction = (built({"org/1": org(limits={"n": number})}) for number in (1, 1.0))
    assert whole.hash != fraction.hash
    assert same(change_apply(whole, change_between(whole, fraction)), fraction)


def test_a_policy_has_the_same_hash_whatever_the_order_of_its_fields() -> None:
    assert policy_hash({"a": 1, "b": 2}) == policy_hash({"b": 2, "a": 1})


def test_canonical_json_is_short_sorted_and_ascii() -> None:
    assert canonical_json({"ü": [1, 0.5, None], "a": True}) == b'{"a":true,"\\u00fc":[1,0.5,null]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_cannot_say_is_no_content(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(number)
    with pytest.raises(MalformedMessage, match=r"org/1: holds a number that is not finite"):
        built({"org/1": org(limits={"n": number})})


# Snapshots


def test_only_policies_somebody_refers_to_are_kept() -> None:
    assert set(built(FEW).policies) == set(HASHES[:2])
    assert set(built(FEW).replaced(drop=["ns/2"]).policies) == {HASHES[0]}


def test_a_policy_that_is_referred_to_must_be_there() -> None:
    with pytest.raises(MalformedMessage, match=f"policies.{HASHES[1]}: is missing"):
        snapshot_build("engine", FEW, {HASHES[0]: POLICIES[0]})


def test_an_entry_may_move_to_another_organisation() -> None:
    moved = built(FEW).replaced(put={"ns/1": ns("2")})
    assert same(moved, built(FEW | {"ns/1": ns("2")}))


def test_dropping_what_is_not_there_changes_nothing() -> None:
    assert same(built(FEW).replaced(drop=["ns/77"]), built(FEW))


def test_an_organisation_without_entries_leaves_no_trace() -> None:
    emptied = built(FEW).replaced(drop=["org/2", "ns/2"])
    assert "2" not in emptied.buckets
    assert same(emptied, built({key: entry for key, entry in FEW.items() if entry["org"] == "1"}))


def test_a_change_touches_no_bucket_of_another_organisation() -> None:
    before = built(FEW)
    after = before.replaced(put={"ns/1": ns("1", epoch=1)})
    assert after.buckets["2"] is before.buckets["2"]


def test_no_secret_shows_in_what_people_print() -> None:
    before = built(FEW)
    change = change_between(built({}), before)
    assert SECRET not in repr(before) + repr(change) + str(before)
    assert change.put["ns/1"]["key"] == SECRET


# Changes


@given(pairs)
def test_a_change_arrives_where_building_from_nothing_arrives(pair: tuple[Snapshot, Snapshot]) -> None:
    before, after = pair
    change = change_decode(change_encode(change_between(before, after)))
    assert same(change_apply(before, change), after)


@given(pairs)
def test_a_change_carries_only_what_differs(pair: tuple[Snapshot, Snapshot]) -> None:
    before, after = pair
    change = change_between(before, after)
    assert all(canonical_json(before.entries.get(key)) != canonical_json(entry) for key, entry in change.put.items())
    assert set(change.drop) == before.entries.keys() - after.entries.keys()
    assert not change.policies.keys() & before.policies.keys()


@given(snapshots)
def test_nothing_changes_between_a_snapshot_and_itself(snapshot: Snapshot) -> None:
    change = change_between(snapshot, snapshot)
    assert (change.put, change.drop, change.policies) == ({}, (), {})
    assert same(change_apply(snapshot, change), snapshot)


@given(pairs)
def test_the_snapshot_a_change_is_applied_to_stays_as_it_was(pair: tuple[Snapshot, Snapshot]) -> None:
    before, after = pair
    told = snapshot_encode(before)
    change_apply(before, change_between(before, after))
    assert snapshot_encode(before) == told
    assert same(before, snapshot_decode(told))


def test_a_change_made_for_another_state_is_refused() -> None:
    before, after = built(FEW), built(FEW | {"ns/1": ns(epoch=1)})
    with pytest.raises(HashMismatch, match=f"expected snapshot {before.hash}, found {after.hash}") as refused:
        change_apply(after, change_between(before, after))
    assert (refused.value.expected, refused.value.found) == (before.hash, after.hash)


def test_a_change_that_leads_elsewhere_is_refused_and_changes_nothing() -> None:
    before, after = built(FEW), built(FEW | {"ns/1": ns(epoch=1)})
    wrong = Change("engine", before.hash, after.hash, {"ns/1": ns(epoch=2)}, (), {})
    with pytest.raises(HashMismatch, match=f"expected snapshot {after.hash}"):
        change_apply(before, wrong)
    assert same(before, built(FEW))


def test_a_change_that_lacks_a_policy_is_refused() -> None:
    before, after = built(FEW), built(FEW | {"ns/1": ns(policy=HASHES[2])})
    change = change_between(before, after)
    assert set(change.policies) == {HASHES[2]}
    with pytest.raises(MalformedMessage, match=f"policies.{HASHES[2]}"):
        change_apply(before, Change("engine", change.base, change.target, change.put, (), {}))


def test_a_change_for_the_other_kind_of_agent_does_not_apply() -> None:
    entries = {"org/1": org()}
    change = change_between(built(entries, "gateway"), built({}, "gateway"))
    with pytest.raises(HashMismatch):
        change_apply(built(entries, "engine"), change)


# Messages


@given(snapshots)
def test_a_snapshot_survives_the_journey(snapshot: Snapshot) -> None:
    assert same(snapshot_decode(snapshot_encode(snapshot)), snapshot)


@settings(max_examples=300)
@given(st.data())
def test_an_altered_byte_of_a_snapshot_is_refused_or_means_the_same(data: st.DataObject) -> None:
    snapshot = data.draw(snapshots)
    altered = bytearray(snapshot_encode(snapshot))
    altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        assert same(snapshot_decode(bytes(altered)), snapshot)


@settings(max_examples=300)
@given(pairs, st.data())
def test_an_altered_byte_of_a_change_is_refused_or_leads_to_the_same(
    pair: tuple[Snapshot, Snapshot], data: st.DataObject
) -> None:
    before, after = pair
    altered = bytearray(change_encode(change_between(before, after)))
    altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        assert same(change_apply(before, change_decode(bytes(altered))), after)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.booleans() | numbers | text, st.lists).map(canonical_json))
def test_anything_else_is_refused_in_one_way(message: bytes) -> None:
    for decode in (snapshot_decode, change_decode):
        with pytest.raises(MalformedMessage):
            decode(message)


def ways_of(key: str, entry: Any) -> dict[str, Callable[[], object]]:
    """Return the ways in which an entry arrives: made here, in a snapshot, and in a change."""
    snapshot = as_told(built({})) | {"entries": {key: entry}}
    change = json.loads(change_encode(change_between(built({}), built({})))) | {"put": {key: entry}}
    return {
        "made here": partial(built, {key: entry}),
        "in a snapshot": partial(snapshot_decode, canonical_json(snapshot)),
        "in a change": partial(change_decode, canonical_json(change)),
    }


def test_a_malformed_entry_is_refused_by_the_name_of_its_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("org/1", org("2"), "org/1.org"),
        ("org/1", {"slug": "s", "state": "active", "limits": {}}, "org/1.org"),
        ("org/1", org(limits=[]), "org/1.limits"),
        ("org/1", org(limits=None), "org/1.limits"),
        ("org/1", org(slug=""), "org/1.slug"),
        ("org/1", org(state=1), "org/1.state"),
        ("org/1", org(more=1), "org/1.more"),
        ("org/1", ["org"], "org/1"),
        ("org/a b", org("a b"), "org/a b"),
        ("org/", org(""), "org/"),
        ("org", org(), "org"),
        ("other/1", org(), "other/1"),
        ("key/1", api_key(), "key/1"),
        ("ns/1", ns(org=None), "ns/1.org"),
        ("ns/1", ns(org="1\0"), "ns/1.org"),
        ("ns/1", ns(org="1\n"), "ns/1.org"),
        ("ns/1", ns(org="١"), "ns/1.org"),
        ("ns/1", ns(epoch=-1), "ns/1.epoch"),
        ("ns/1", ns(epoch=True), "ns/1.epoch"),
        ("ns/1", ns(epoch=1.0), "ns/1.epoch"),
        ("ns/1", ns(revision="1"), "ns/1.revision"),
        ("ns/1", ns(revision=2**63), "ns/1.revision"),
        ("ns/1", ns(key=base64.b64encode(b"k" * 31).decode()), "ns/1.key"),
        ("ns/1", ns(key=base64.b64encode(b"k" * 33).decode()), "ns/1.key"),
        ("ns/1", ns(key=SECRET.replace("=", "")), "ns/1.key"),
        ("ns/1", ns(key=SECRET[:-2] + "V="), "ns/1.key"),
        ("ns/1", ns(key="ü" * 44), "ns/1.key"),
        ("ns/1", ns(key=None), "ns/1.key"),
        ("ns/1", ns(policy=HASHES[0].upper()), "ns/1.policy"),
        ("pin/1", pin(ns=1), "pin/1.ns"),
        ("pin/1", pin(bytes=-1), "pin/1.bytes"),
        ("pin/1", pin(expires_at=5), "pin/1.expires_at"),
        ("pin/1", pin(expires_at="2026-02-30T00:00:00Z"), "pin/1.expires_at"),
        ("pin/1", pin(expires_at="2026-02-03T00:00:00+01:00"), "pin/1.expires_at"),
    ]
    for key, entry, field in cases:
        for way, read in ways_of(key, entry).items():
            with subtests.test(msg=case_name(way, key, entry)):
                with pytest.raises(MalformedMessage) as problem:
                    read()
                assert problem.value.field == field
                assert "kkkk" not in str(problem.value)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (api_key(hash="ab"), "key/1.hash"),
        (api_key(namespaces=[1]), "key/1.namespaces"),
        (api_key(namespaces="1"), "key/1.namespaces"),
        (api_key(scopes=None), "key/1.scopes"),
        (api_key(scopes=[""]), "key/1.scopes"),
    ],
)
def test_a_malformed_key_is_refused_by_the_name_of_its_field(entry: Entry, field: str) -> None:
    with pytest.raises(MalformedMessage) as problem:
        built({"key/1": entry}, "gateway")
    assert problem.value.field == field


def test_gateways_hold_no_pins_and_engines_no_keys() -> None:
    with pytest.raises(MalformedMessage, match="pin/1: is not the name of an entry of this kind"):
        built({"pin/1": pin()}, "gateway")
    with pytest.raises(MalformedMessage, match="key/1: is not the name of an entry of this kind"):
        built({"key/1": api_key()}, "engine")


def test_a_malformed_snapshot_is_refused_by_the_name_of_its_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"format": 2}, "format"),
        ({"format": True}, "format"),
        ({"format": 1.0}, "format"),
        ({"kind": "agent"}, "kind"),
        ({"kind": ["engine"]}, "kind"),
        ({"kind": "gateway"}, "pin/1"),
        ({"hash": None}, "hash"),
        ({"hash": DIGEST}, "hash"),
        ({"entries": []}, "entries"),
        ({"entries": {}}, "hash"),
        ({"policies": []}, "policies"),
        ({"policies": {}}, f"policies.{min(HASHES[:2])}"),
        ({"policies": {HASHES[0]: POLICIES[1]}}, f"policies.{HASHES[0]}"),
        ({"policies": {HASHES[0]: None}}, f"policies.{HASHES[0]}"),
        ({"surprise": 1}, "surprise"),
    ]
    for wrong, field in cases:
        with subtests.test(msg=case_name(wrong, field)):
            with pytest.raises(MalformedMessage) as problem:
                snapshot_decode(canonical_json(as_told(built(FEW)) | wrong))
            assert problem.value.field == field


@pytest.mark.parametrize("field", ["format", "kind", "base", "target", "put", "drop", "policies"])
def test_a_change_lacking_a_field_is_refused_by_its_name(field: str) -> None:
    told = json.loads(change_encode(change_between(built({}), built(FEW))))
    del told[field]
    with pytest.raises(MalformedMessage) as problem:
        change_decode(canonical_json(told))
    assert problem.value.field == field


@pytest.mark.parametrize("policy", [POLICIES[1], None, [], {"n": float("nan")}])
def test_a_change_with_a_policy_under_another_hash_is_refused(policy: Any) -> None:
    told = json.loads(change_encode(change_between(built({}), built(FEW)))) | {"policies": {HASHES[0]: policy}}
    with pytest.raises(MalformedMessage, match=f"policies.{HASHES[0]}: is not the hash"):
        change_decode(json.dumps(told).encode())


@pytest.mark.parametrize("drop", [["key/1"], ["nonsense"], ["ns/" + "1" * 65]])
def test_a_change_drops_only_what_could_be_there(drop: list[str]) -> None:
    told = json.loads(change_encode(change_between(built({}), built(FEW)))) | {"drop": drop}
    with pytest.raises(MalformedMessage, match="is not the name of an entry"):
        change_decode(canonical_json(told))


@pytest.mark.parametrize("spelled", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_entry(spelled: str) -> None:
    told = snapshot_encode(built({"org/1": org(limits={"n": 123})})).replace(b"123", spelled.encode())
    with pytest.raises(MalformedMessage, match="org/1: holds a number that is not finite"):
        snapshot_decode(told)


def test_a_name_that_stands_twice_in_one_object_is_refused_by_name() -> None:
    told = snapshot_encode(built(FEW)).replace(b'"epoch":0', b'"epoch":0,"epoch":0', 1)
    with pytest.raises(MalformedMessage, match="epoch: stands twice"):
        snapshot_decode(told)


def test_what_is_no_json_in_utf_8_is_refused(subtests: pytest.Subtests) -> None:
    cases = {
        "empty": b"",
        "cut": b"[",
        "not UTF-8": b"\xff",
        "UTF-16": "{}".encode("utf-16"),
        "byte order mark": b"\xef\xbb\xbf{}",
        "deep": b"[" * 200_000,
        "long number": b"1" * 5000,
        "deep objects": b'{"a":' * 5000,
    }
    for kind, message in cases.items():
        with subtests.test(msg=kind), pytest.raises(MalformedMessage, match="message: is not JSON"):
            snapshot_decode(message)


def test_content_nested_beyond_reason_is_refused() -> None:
    told = snapshot_encode(built({"org/1": org(limits={"n": 123})}))
    with pytest.raises(MalformedMessage):
        snapshot_decode(told.replace(b"123", b"[" * 50_000 + b"]" * 50_000))


def test_an_error_shows_a_hostile_name_shortened_and_in_ascii() -> None:
    told = as_told(built({})) | {"\ud800\n" * 100: 1}
    with pytest.raises(MalformedMessage) as problem:
        snapshot_decode(canonical_json(told))
    assert problem.value.field.isascii()
    assert problem.value.field.isprintable()
    assert len(problem.value.field) < 400


def test_each_agent_has_a_queue_of_its_own() -> None:
    assert queue_name("agent-1") == "agent.agent-1"
