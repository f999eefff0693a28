"""A sidecar's small pure parts: its clock, its commands, proofs, and what it may speak to."""

import base64
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine_agent.contracts.sealing import command_seal
from engine_agent.contracts.wire import MOST_COMMAND_CHARACTERS, Command, command_encode
from engine_agent.server.fleet_clock import FleetClock
from engine_agent.sidecar.clock import ControlPlaneClock, learnt_encode, learnt_read
from engine_agent.sidecar.commands import Keys, command_read, operation_wanted, state_wanted
from engine_agent.sidecar.errors import BadAddress
from engine_agent.sidecar.events import CommandCame, CommandRefused
from engine_agent.sidecar.holder import Proof
from engine_agent.sidecar.link import address_check
from engine_agent.sidecar.operating import MOST_PROBLEMS, operation_outcome
from engine_agent.sidecar.proofs import are_complete, proof_reports
from tests.support.case_names import case_name


@dataclass
class Hands:
    """Of two clocks: one only goes forward, the other can be set."""

    steady: float = 1_000.0
    wall: float = 5_000.0

    def pass_by(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


def test_the_control_planes_clock_is_learnt_from_its_answers() -> None:
    hands = Hands()
    clock = ControlPlaneClock(steady=lambda: hands.steady, wall=lambda: hands.wall)
    assert (clock.now(), clock.is_learnt) == (5_000.0, False)
    clock.learn(5_600.0, asked_at=999.9, answered_at=1_000.1)
    hands.pass_by(10)
    assert clock.now() == pytest.approx(5_610)
    assert clock.offset_seconds == pytest.approx(600)
    hands.wall -= 3_600
    assert clock.now() == pytest.approx(5_610), "somebody set this machine's clock"
    assert clock.offset_seconds == pytest.approx(4_200)


def test_the_fastest_answer_is_believed_until_a_clock_was_set() -> None:
    hands = Hands()
    clock = ControlPlaneClock(steady=lambda: hands.steady, wall=lambda: hands.wall)
    clock.learn(5_600.0, asked_at=999.99, answered_at=1_000.01)
    clock.learn(5_603.0, asked_at=990.0, answered_at=1_010.0)
    assert clock.now() == pytest.approx(5_600)
    clock.learn(9_999.0, asked_at=999.0, answered_at=1_001.0)
    assert clock.now() == pytest.approx(9_999)


def test_what_was_learnt_is_known_at_the_next_start_whoever_sets_the_clock_between(tmp_path: Path) -> None:
    hands = Hands()
    clock = ControlPlaneClock(steady=lambda: hands.steady, wall=lambda: hands.wall)
    clock.learn(5_600.0, asked_at=1_000.0, answered_at=1_000.0)
    (tmp_path / "clock").write_bytes(learnt_encode(clock.kept()))
    hands.pass_by(100)
    hands.wall += 3_600

    kept = learnt_read(tmp_path / "clock")
    again = ControlPlaneClock(kept, steady=lambda: hands.steady, wall=lambda: hands.wall)
    assert (again.now(), again.is_known, again.is_learnt) == (5_700.0, True, False)
    assert kept is not None
    elsewhere = replace(kept, machine_boot="another start of this machine")
    booted = ControlPlaneClock(elsewhere, steady=lambda: hands.steady, wall=lambda: hands.wall)
    assert booted.now() == pytest.approx(5_700 + 3_600), "as far off as the machine's clock was"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"machine_boot": "", "ahead": "x", "offset_seconds": 1}', b"\xff"]
)
def test_a_kept_clock_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clock").write_bytes(content)
    assert learnt_read(tmp_path / "clock") is None
    assert learnt_read(tmp_path / "nothing") is None


def test_an_engine_reads_the_fleets_clock_and_moves_what_it_remembers_with_it() -> None:
    hands, moved = Hands(), list[float]()
    clock = FleetClock(steady=lambda: hands.steady, wall=lambda: hands.wall)
    clock.on_moved = moved.append
    clock.set(600)
    hands.pass_by(5)
    hands.wall += 1_234  # set by somebody
    assert (clock(), moved) == (5_605.0, [600.0])


SIGNING, SEALING = Ed25519PrivateKey.generate(), os.urandom(32)
KEYS = Keys("unit-1", SEALING, SIGNING.public_key())
COMMAND = Command("unit-1", "c1", "wake", 0, 1.0, 2.0, {})


def sealed(message: bytes, *, agent: str = "unit-1", key: bytes = SEALING, signing: Ed25519PrivateKey = SIGNING) -> str:
    return command_seal(message, agent=agent, key=key, signing=signing)


def read(text: object) -> CommandCame | CommandRefused:
    return command_read(text, KEYS, delivery=1, is_redelivered=False)


def test_a_command_of_ours_is_read() -> None:
    assert read(sealed(command_encode(COMMAND))) == CommandCame(1, COMMAND)


def test_what_is_no_command_of_ours_is_told_apart(subtests: pytest.Subtests) -> None:
    cases: list[tuple[object, str]] = [
        (sealed(command_encode(COMMAND), signing=Ed25519PrivateKey.generate()), "forged"),
        (sealed(command_encode(COMMAND), agent="unit-2"), "forged"),
        (sealed(command_encode(COMMAND), key=bytes(32)), "corrupt"),
        (sealed(b"{}"), "malformed"),
        (sealed(b"\xff"), "malformed"),
        (sealed(b"[" * 100_000), "malformed"),
        (sealed(command_encode(COMMAND))[:-4], "forged"),
        ("", "malformed"),
        ("ü", "malformed"),
        (b"bytes", "malformed"),
        (None, "malformed"),
        ({"a": 1}, "malformed"),
        ("v1." + "A" * MOST_COMMAND_CHARACTERS, "malformed"),
    ]
    for text, reason in cases:
        with subtests.test(msg=case_name(text, reason)):
            found = read(text)
            assert isinstance(found, CommandRefused)
            assert found.reason == reason


def test_a_wanted_state_has_a_target_and_may_have_a_change() -> None:
    body = {"base": None, "target": "a" * 64, "change": None}
    assert state_wanted(body) is not None
    change = base64.b64encode(b"change").decode()
    wanted = state_wanted(body | {"base": "b" * 64, "change": change})
    assert wanted is not None
    assert wanted.change == b"change"
    wrongs: list[dict[str, object]] = [{"target": 7}, {"change": 7}, {"change": "ä"}, {"base": 1}, {"more": 1}]
    for wrong in wrongs:
        assert state_wanted(body | wrong) is None


def test_a_wanted_operation_is_one_that_is_known() -> None:
    body = {"operation": "op-1", "deed": "drain", "arguments": {}, "deadline": 5}
    assert operation_wanted(body) is not None
    others: list[dict[str, object]] = [
        {"deed": "explode"},
        {"operation": ""},
        {"arguments": []},
        {"deadline": "soon"},
        {"deadline": None},
    ]
    for wrong in others:
        assert operation_wanted(body | wrong) is None


def proof(number: int, blocks: int, *, is_final: bool = True, epoch: int = 2) -> Proof:
    return Proof("e1", number, "ns", epoch, blocks, blocks * 10, 1.0, is_final)


def test_a_purge_is_complete_when_what_waited_is_proven_again() -> None:
    assert are_complete([])
    assert are_complete([proof(1, 3)])
    assert not are_complete([proof(1, 3, is_final=False)])
    assert are_complete([proof(1, 3, is_final=False), proof(2, 5)])
    assert not are_complete([proof(1, 3, is_final=False), proof(2, 5, epoch=3)])


def test_blocks_of_one_purge_are_counted_once() -> None:
    told = [dict(one.told) for one in proof_reports([proof(1, 3, is_final=False), proof(2, 5), proof(3, 7, epoch=3)])]
    assert [(one["epoch"], one["blocks"], one["bytes"]) for one in told] == [(2, 5, 50), (3, 7, 70)]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://luminet.example.com/", "https://luminet.example.com"),
        ("luminet.example.com", "https://luminet.example.com"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://web:8000", "http://web:8000"),
    ],
)
def test_a_control_plane_may_be_spoken_to(url: str, found: str) -> None:
    assert address_check(url, ["web"]) == found


@pytest.mark.parametrize(
    "url",
    [
        "http://luminet.example.com",
        "http://127.0.0.1.example.com",
        "http://10.0.0.1",
        "ftp://luminet.example.com",
        "https://",
        "https://user:secret@luminet.example.com",
        "https://luminet.example.com/?a=b",
    ],
)
def test_a_control_plane_may_not_be_spoken_to(url: str) -> None:
    with pytest.raises(BadAddress):
        address_check(url)


# What an operation came to


def test_a_check_that_found_something_has_not_gone_well_whatever_is_said_of_it() -> None:
    assert operation_outcome("integrity", {"problems": []}) == (True, {"problems": []})
    assert operation_outcome("integrity", {"problems": ["twice"]}) == (False, {"problems": ["twice"]})
    assert operation_outcome("integrity", {"ok": True, "problems": ["twice"]})[0] is False
    assert operation_outcome("integrity", {})[0] is False
    assert operation_outcome("drain", {"left": 2}) == (True, {"left": 2})


def test_of_many_problems_the_first_are_named_and_all_are_counted() -> None:
    is_ok, result = operation_outcome("integrity", {"problems": [f"block {number}" for number in range(400)]})
    assert (is_ok, len(result["problems"]), result["problem_count"]) == (False, MOST_PROBLEMS, 400)
    assert result["problems"][0] == "block 0"
