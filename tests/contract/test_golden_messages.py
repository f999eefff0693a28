"""Messages as they were once agreed, for agents of yesterday still read them.

If a test here fails, the format has changed, and `FORMAT` has to change with it. The files in golden/ are laid out for
people; what travels is their canonical form.
"""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from engine_agent.contracts.protocol import (
    canonical_json,
    change_apply,
    change_decode,
    change_encode,
    policy_hash,
    snapshot_decode,
    snapshot_encode,
)

GOLDEN = Path(__file__).parent / "golden"
SNAPSHOT_HASHES = {
    "engine": "1b77d2e7b7905ee7349914d32a7aa22cea09ac88d3f36a240f2ff9aca9e0d21f",
    "gateway": "bc22359ffcfa1ada3d08a3246ad8f2275276d1478592608b8ab37c399e002355",
}
ENCODED = {
    "snapshot-engine": "d4c338a05262bd37e8ac0dab1570cdafcae6eaac7e1a5d1a5287a83c5c016f3e",
    "snapshot-gateway": "f1112f86e4f46e2273aab2d0f667d889bd3a6e44d9a79eb6dc03227e32a62cc9",
    "change-engine": "6ead45a04249c18c183db77ffa58d7751b0cef6206a29518465df6493bbf6e2c",
}


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def test_what_travels_is_byte_for_byte_what_was_agreed(subtests: pytest.Subtests) -> None:
    for name in ENCODED:
        with subtests.test(msg=name):
            again = (
                snapshot_encode(snapshot_decode(golden(name)))
                if "snapshot" in name
                else change_encode(change_decode(golden(name)))
            )
            assert again == canonical_json(json.loads(golden(name)))
            assert sha256(again).hexdigest() == ENCODED[name]


def test_a_snapshot_keeps_its_hash(subtests: pytest.Subtests) -> None:
    for kind in SNAPSHOT_HASHES:
        with subtests.test(msg=kind):
            snapshot = snapshot_decode(golden(f"snapshot-{kind}"))
            assert (snapshot.kind, snapshot.hash) == (kind, SNAPSHOT_HASHES[kind])


def test_a_policy_keeps_its_hash(subtests: pytest.Subtests) -> None:
    for name in ENCODED:
        with subtests.test(msg=name):
            policies = json.loads(golden(name))["policies"]
            assert policies
            assert {policy_hash(policy) for policy in policies.values()} == set(policies)


def test_the_change_leads_from_the_snapshot_to_its_target() -> None:
    before, change = snapshot_decode(golden("snapshot-engine")), change_decode(golden("change-engine"))
    after = change_apply(before, change)
    assert after.hash == change.target
    assert after.entries["ns/1"]["revision"] == 8
    assert "pin/9" not in after.entries


def test_a_hash_can_be_computed_without_this_module() -> None:
    """The recipe, spelled out for whoever writes an agent in another language."""
    message = json.loads(golden("snapshot-gateway"))
    buckets: dict[str, bytes] = {}
    for key, entry in sorted(message["entries"].items()):
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        buckets[entry["org"]] = buckets.get(entry["org"], b"") + sha256(f"{key}\0{text}".encode("ascii")).digest()
    root = sha256(b"luminet snapshot 1\0gateway\0")
    for org, hashes in sorted(buckets.items()):
        root.update(org.encode("ascii") + b"\0" + sha256(hashes).digest())
    assert root.hexdigest() == message["hash"]
