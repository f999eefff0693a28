"""Gateways, engines and control planes of two versions, side by side as while a fleet is upgraded.

Golden messages are of the version before; what is of the version after this one is made here, with what it may add.
"""

import base64
import hmac
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from engine_agent.contracts.block_events import BadPage, Load, OtherVersion, Page, events_decode, events_encode
from engine_agent.contracts.identity import BadIdentity, Identity, sign, verify
from engine_agent.contracts.protocol import (
    MalformedMessage,
    Snapshot,
    canonical_json,
    change_apply,
    change_between,
    change_decode,
    change_encode,
    snapshot_build,
    snapshot_decode,
    snapshot_encode,
)
from engine_agent.contracts.usage import MOST_KEY_ROWS
from engine_agent.contracts.wire import Batch, Report, batch_decode, batch_encode
from engine_agent.engine.held import Held, SnapshotReader
from engine_agent.gateway.knowing.watching import About
from engine_agent.gateway.tables import tables_empty, tables_read
from engine_agent.journal.records import Entry, entry_document, entry_of, line_of
from engine_agent.sidecar.folding import checksum
from tests.engines.journals import OPENED

GOLDEN = Path(__file__).parent / "golden"
BEFORE = json.loads((GOLDEN / "identity.json").read_text())
SECRET = BEFORE["secret"].encode()
IDENTITY = Identity(**BEFORE["identity"])


def believed(header: str) -> Identity:
    return verify(header, [SECRET], audience=IDENTITY.audience, now=IDENTITY.issued_at)


def newer(payload: str | dict[str, Any]) -> str:
    """As a gateway of tomorrow signs: spelled out, since nobody here says such things."""
    text = payload if isinstance(payload, str) else canonical_json(payload).decode()
    signed = "v1." + base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
    mac = hmac.digest(SECRET, b"luminet identity\0" + signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def told(**more: Any) -> dict[str, Any]:
    return {**BEFORE["identity"], **more}


# Identities


def test_an_engine_believes_a_gateway_of_before_which_says_less() -> None:
    assert not {"elsewhere_tokens", "key_id"} & BEFORE["identity"].keys()
    assert believed(BEFORE["header"]) == IDENTITY


def test_an_engine_of_before_is_told_byte_for_byte_what_it_knows() -> None:
    assert sign(IDENTITY, SECRET) == BEFORE["header"]


def test_what_came_later_is_said_where_there_is_something_to_say() -> None:
    knowing = replace(IDENTITY, elsewhere_tokens=640, key_id="0192f3a0-7d1c-4c3e-9a55-4f6f2f0e8d11")
    assert sign(knowing, SECRET) == newer(asdict(knowing))
    assert believed(sign(knowing, SECRET)) == knowing


def test_an_engine_believes_a_gateway_of_after_without_what_it_does_not_know() -> None:
    assert believed(newer(told(lane="fast", trace={"id": 7}))) == IDENTITY
    assert believed(newer(told(elsewhere_tokens=5, critical=["elsewhere_tokens", "audience"]))).elsewhere_tokens == 5


def test_what_must_be_understood_and_is_not_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [["only_until"], ["audience", "only_until"], "audience", {"audience": 1}, [1], None]
    for critical in cases:
        with subtests.test(msg=repr(critical)), pytest.raises(BadIdentity, match="critical"):
            believed(newer(told(only_until="noon", critical=critical)))


def test_what_is_not_known_is_signed_all_the_same() -> None:
    head, mac = newer(told(lane="fast")).rsplit(".", 1)
    slow = newer(told(lane="slow")).rsplit(".", 1)[0]
    assert head != slow
    with pytest.raises(BadIdentity, match="none of the secrets"):
        believed(f"{slow}.{mac}")


def test_what_was_there_from_the_first_is_never_left_out(subtests: pytest.Subtests) -> None:
    for name in sorted(BEFORE["identity"]):
        with subtests.test(msg=name), pytest.raises(BadIdentity, match=f"lacks {name}"):
            believed(newer({one: value for one, value in told(lane="fast").items() if one != name}))


def test_a_name_that_stands_twice_is_no_payload() -> None:
    text = canonical_json(told()).decode()
    with pytest.raises(BadIdentity, match="each name once"):
        believed(newer(text.replace('"attempt":1', '"attempt":1,"attempt":1')))


def test_another_version_of_the_header_is_refused() -> None:
    with pytest.raises(BadIdentity, match="no header of the form v1"):
        believed("v2" + BEFORE["header"][2:])


# Journals, which engines write and sidecars read, before and after one of the two is upgraded


def test_a_journal_of_before_is_read_and_its_lines_stay_as_they_were() -> None:
    """What a sidecar has read is known by the checksums of lines."""
    (line,) = (GOLDEN / "journal.log").read_bytes().splitlines()
    entry = entry_of(line)
    assert entry.record == OPENED
    assert line_of(entry) == line + b"\n"
    assert checksum(entry) == crc32(line + b"\n")


def test_a_sidecar_of_before_reads_what_it_knows_of_a_record_of_now() -> None:
    entry = Entry(1, replace(OPENED, key_id="key-7"))
    told = entry_document(entry)
    assert {name: value for name, value in told.items() if name != "key_id"} == entry_document(Entry(1, OPENED))
    assert entry_of(line_of(entry).rstrip()) == entry


def test_a_sidecar_that_is_upgraded_knows_the_journal_again() -> None:
    """Or it would read all of it anew, as another's."""
    assert checksum(Entry(1, replace(OPENED, key_id="key-7"))) == checksum(Entry(1, OPENED))


def test_a_control_plane_of_before_passes_over_keys_and_one_of_now_over_reports_without() -> None:
    row = [1_790_000_040, "7", "m", "key-7", 1, 10, 5, 3]
    more = Report("usage", {"boot": "b", "upto": 1, "rows": [], "totals": {}, "lost": 0, "keys": [row], "lanes": [1]})
    least = Report("usage", {"boot": "b", "upto": 1, "rows": [], "totals": {}, "lost": 0})
    assert batch_decode(batch_encode(Batch(0.0, "s", 1, [more, least], None))).reports == [more, least]


def test_keys_that_are_no_list_of_few_are_refused_by_name(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [{}, 7, [[]] * (MOST_KEY_ROWS + 1)]
    for keys in cases:
        with subtests.test(msg=repr(keys)[:20]):
            told = {"boot": "b", "upto": 1, "rows": [], "totals": {}, "lost": 0, "keys": keys}
            with pytest.raises(MalformedMessage, match=r"reports\.0\.told\.keys"):
                batch_decode(batch_encode(Batch(0.0, "s", 1, [Report("usage", told)], None)))


# What engines tell gateways


def test_a_page_of_another_version_is_told_from_a_torn_one() -> None:
    page = events_encode(Page("boot-1", 1, True, True, Load(0, 0, 1, 1, 1, 0.0), ()))
    with pytest.raises(OtherVersion, match="of version 2, and 1 is read here"):
        events_decode(page[:7] + b"\x02" + page[8:])
    with pytest.raises(BadPage, match="does not begin as a page") as caught:
        events_decode(b"X" + page[1:])
    assert not isinstance(caught.value, OtherVersion)


ABOUT = {"model": "demo", "boot": "b1", "revision": "r1", "block_tokens": 16, "kv_dtypes": ["bf16"], "bundle": "a" * 64}


def test_an_engine_may_say_more_of_itself_or_less() -> None:
    least, more = About.read(ABOUT), About.read({**ABOUT, "seats": 4, "scale_sets": {"bf16": ""}, "colour": "red"})
    assert (least.seats, least.grounds) == (0, more.grounds)
    assert more.seats == 4


# Snapshots


HINT = {"hint/7": {"org": "acme", "optional": True, "of": ["whatever", {"it": 1.5}]}}


def golden(kind: str) -> Snapshot:
    return snapshot_decode((GOLDEN / f"snapshot-{kind}.json").read_bytes())


def with_hint(kind: Any, hint: Any = HINT) -> bytes:
    """A snapshot of tomorrow, with its hash."""
    before = golden(kind)
    return snapshot_encode(snapshot_build(kind, {**before.entries, **hint}, before.policies))


def test_an_entry_of_tomorrow_is_held_with_the_rest(subtests: pytest.Subtests) -> None:
    for kind in ("engine", "gateway"):
        with subtests.test(msg=kind):
            message = with_hint(kind)
            found = snapshot_decode(message)
            assert snapshot_encode(found) == message
            assert found.hash != golden(kind).hash, "what is held is told apart, also where it is not understood"


def test_what_an_engine_obeys_is_what_it_knows() -> None:
    reader = SnapshotReader(model="demo", kv_formats=("fp8", "int4", "bf16"))
    known, more = (reader.read(one, Held.nothing()) for one in (golden("engine"), snapshot_decode(with_hint("engine"))))
    assert (more.tenants, more.pins, more.strays) == (known.tenants, known.pins, known.strays)
    assert reader.read(golden("engine"), more).tenants == known.tenants


def test_what_a_gateway_serves_by_is_what_it_knows() -> None:
    fleets = {"hint/8": {"org": "fleet", "optional": True}}
    more = tables_read(snapshot_decode(with_hint("gateway", {**HINT, **fleets})), tables_empty())
    known = tables_read(golden("gateway"), tables_empty())
    assert replace(more, snapshot=known.snapshot) == known


def test_it_comes_and_goes_by_changes_too(subtests: pytest.Subtests) -> None:
    for kind in ("engine", "gateway"):
        with subtests.test(msg=kind):
            before, after = golden(kind), snapshot_decode(with_hint(kind))
            for one, other in ((before, after), (after, before)):
                change = change_decode(change_encode(change_between(one, other)))
                assert change_apply(one, change).hash == other.hash


def test_what_does_not_say_that_it_is_optional_is_refused_as_ever(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("hint/7", {"org": "acme"}, "is not the name of an entry"),
        ("hint/7", {"org": "acme", "optional": 1}, "is not the name of an entry"),
        ("hint/7", {"optional": True}, "must be an id"),
        ("hint/7", {"org": "no id", "optional": True}, "must be an id"),
        ("hint/", {"org": "acme", "optional": True}, "is not the name of an entry"),
        ("HINT/7", {"org": "acme", "optional": True}, "is not the name of an entry"),
        ("key/7", {"org": "acme", "optional": True}, "is not the name of an entry"),
        ("ns/7", {"org": "acme", "optional": True}, "is missing"),
    ]
    for key, entry, problem in cases:
        with subtests.test(msg=f"{key}: {entry}"), pytest.raises(MalformedMessage, match=problem):
            with_hint("engine", {key: entry})
