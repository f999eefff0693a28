"""What one sidecar decides, event by event."""

import base64
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from engine_agent.contracts.protocol import root_hash
from engine_agent.contracts.wire import Command, ReportKind, heartbeat_check
from engine_agent.sidecar import effects as asked
from engine_agent.sidecar import events as said
from engine_agent.sidecar.effects import Effect, Held, Ledger
from engine_agent.sidecar.events import Event
from engine_agent.sidecar.holder import HolderState, Proof
from engine_agent.sidecar.state import (
    COMMAND_WAIT_SECONDS,
    PROOF_SECONDS,
    QUIET_SECONDS,
    REFUSED_SECONDS,
    Sidecar,
)

AT = 1_790_000_000.0  # by the control plane's clock, when the steady one shows 0
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
EMPTY = root_hash("engine", {})
Kind = TypeVar("Kind")


@dataclass
class Driven:
    """A machine, and a clock."""

    machine: Sidecar = field(default_factory=lambda: Sidecar("unit-1", boot="s1"))
    now: float = 100.0
    effects: list[Effect] = field(default_factory=list)  # of the last event
    numbers: int = 0

    def on(self, event: Event, *, after: float = 0.0) -> "Driven":
        self.now += after
        self.effects = self.machine.on(event, now=self.now, at=AT + self.now)
        return self

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        return [one for one in self.effects if isinstance(one, kind)]

    def one(self, kind: type[Kind]) -> Kind:
        found = self.all_of(kind)
        assert len(found) == 1, self.effects
        return found[0]

    def told(self, kind: str) -> list[dict[str, Any]]:
        reports = [report for tell in self.all_of(asked.Tell) for report in tell.reports]
        return [dict(one.told) for one in reports if one.kind == kind]

    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.all_of(asked.Settle)]

    def command(self, deed: Any, generation: int, body: dict[str, Any], **fields: Any) -> Command:
        self.numbers += 1
        at = AT + self.now
        whole: dict[str, Any] = {
            "agent": "unit-1",
            "id": f"c{self.numbers}",
            "issued_at": at,
            "expires_at": at + 30,
        } | fields
        return Command(deed=deed, generation=generation, body=body, **whole)

    def apply(self, generation: int, target: str, *, base: str | None = None, **fields: Any) -> "Driven":
        """A command that asks for it; with a change where there is a base."""
        change = None if base is None else base64.b64encode(target.encode()).decode()
        body = {"base": base, "target": target, "change": change}
        return self.on(said.CommandCame(generation, self.command("apply", generation, body, **fields)))

    def operation(self, name: str, deed: str = "drain", *, seconds: float = 60) -> "Driven":
        deadline = AT + self.now + seconds
        body = {"operation": name, "deed": deed, "arguments": {}, "deadline": deadline}
        return self.on(said.CommandCame(7, self.command("operation", 0, body)))

    def see(self, hash_: str | None, *, boot: str = "e1", state: str = "ready") -> "Driven":
        return self.on(said.HolderSeen(HolderState(boot, state, hash=hash_)))

    def answered(self, generation: int | None, hash_: str | None, *waiting: ReportKind, spooled: int = 0) -> "Driven":
        return self.on(said.Answered(generation, hash_, 0.5, (), spooled or len(waiting), frozenset(waiting)))

    def applied(self, generation: int, hash_: str, *, boot: str = "e1") -> "Driven":
        return self.on(said.Applied(generation, hash_, boot, 0.01))

    def proved(self, *proofs: Proof, after: float = 0.0) -> "Driven":
        return self.on(said.Proved(proofs), after=after)

    @property
    def engine_state(self) -> str:
        return self.machine.engine_state[0]


def driven(held: Held | None = None, **fields: Any) -> Driven:
    return Driven(Sidecar("unit-1", boot="s1", held=held, **fields))


def holding(generation: int = 1, hash_: str = A) -> Driven:
    """A machine whose engine holds that, which is the newest, and which has told all of it."""
    one = driven(Held(generation, hash_))
    one.on(said.Started())
    one.answered(generation, hash_)
    one.see(hash_)
    one.on(said.Pulled(generation, hash_, None))
    one.proved()
    while one.machine._is_sending:
        one.answered(generation, hash_)
    assert one.engine_state == "ready"
    return one


# Starting


def test_it_begins_by_saying_so_and_pulls_as_soon_as_there_is_an_engine() -> None:
    one = driven()
    assert one.on(said.Started()).effects == [asked.Send()]
    assert one.see(EMPTY).one(asked.Pull).have is None
    assert one.engine_state == "starting"
    apply = one.on(said.Pulled(4, A, b"all")).one(asked.Apply)
    assert (apply.generation, apply.target, apply.content, apply.is_change) == (4, A, b"all", False)
    assert one.applied(4, A).one(asked.Prove) == asked.Prove("", 0)
    assert one.engine_state == "ready"
    assert [told["generation"] for told in one.proved().told("applied")] == [4]


def test_what_was_applied_and_not_told_before_a_crash_is_told_after_it() -> None:
    one = driven(Held(2, A))
    one.on(said.Started()).see(A)
    assert [told["hash"] for told in one.proved().told("applied")] == [A]


def test_an_engine_that_holds_what_the_store_does_not_is_left_alone_until_a_pull_says_what_is_newest() -> None:
    one = driven(Held(2, A))
    one.on(said.Started()).see(B)
    assert not one.all_of(asked.Restore)
    assert one.one(asked.Pull).have == A
    apply = one.on(said.Pulled(3, B, b"all")).one(asked.Apply)
    assert apply.target == B


def test_a_fresh_engine_gets_the_stored_snapshot_before_it_counts_as_ready() -> None:
    one = holding()
    one.on(said.HolderSeen(None, "dead"))
    assert (one.engine_state, one.machine.engine_state[1]) == ("down", "dead")
    assert one.see(EMPTY, boot="e2").one(asked.Restore) == asked.Restore(is_draining=False)
    assert one.engine_state == "starting"
    one.on(said.Restored("e2"))
    assert one.engine_state == "ready"
    heartbeat = one.machine.heartbeat({})
    heartbeat_check(heartbeat)
    assert heartbeat["engine"] == {"boot": "e2", "state": "ready", "why": "", "hash": A}


def test_a_fresh_engine_is_not_ready_with_the_stored_snapshot_while_a_newer_one_can_be_had() -> None:
    one = holding()
    one.on(said.HolderSeen(None, "dead")).apply(2, B)
    one.see(EMPTY, boot="e2")
    one.on(said.Restored("e2"))
    assert one.engine_state == "starting"
    one.on(said.Pulled(2, B, b"all")).applied(2, B, boot="e2")
    assert one.engine_state == "ready"


def test_without_a_control_plane_a_fresh_engine_is_ready_with_the_stored_snapshot() -> None:
    one = driven(Held(1, A))
    one.on(said.Started()).see(EMPTY)
    one.on(said.Restored("e1"))
    assert one.engine_state == "starting"
    one.on(said.PullFailed("away"))
    assert one.engine_state == "ready"


def test_a_drained_agent_stays_drained_when_its_engine_began_anew() -> None:
    one = driven(Held(1, A), ledger=Ledger(is_draining=True))
    one.on(said.Started())
    assert one.see(EMPTY).one(asked.Restore).is_draining


# Commands


def test_a_change_to_what_is_held_is_applied_then_proven_then_told_and_settled() -> None:
    one = holding()
    assert one.apply(2, B, base=A).one(asked.Apply).content == B.encode()
    assert one.applied(2, B).outcomes() == ["applied"]
    assert one.one(asked.Prove) is not None
    one.proved(Proof("e1", 1, "ns", 2, 10, 100, AT))
    assert [report.kind for report in one.one(asked.Tell).reports] == ["purged", "applied"]
    assert one.one(asked.Tell).proofs_told == ("e1", 1)
    assert one.one(asked.Send) is not None, "the acknowledgement is sent at once"


@pytest.mark.parametrize("base", [None, C])
def test_what_does_not_lead_there_from_here_is_pulled(base: str | None) -> None:
    one = holding()
    one.apply(2, B, base=base)
    assert one.one(asked.Pull) is not None
    assert one.outcomes() == ["pulled"]


def test_an_older_generation_is_refused_and_told() -> None:
    one = holding(5)
    one.apply(4, B, base=A)
    assert one.outcomes() == ["older"]
    assert not one.all_of(asked.Apply)
    assert one.told("refused") == [
        {"reason": "older", "what": "generation 4, 5 is held", "at": AT + one.now, "count": 1}
    ]


def test_a_pulled_snapshot_that_is_older_is_not_applied() -> None:
    one = holding(5)
    one.on(said.Ticked(), after=QUIET_SECONDS)
    one.on(said.Pulled(4, B, b"all"))
    assert not one.all_of(asked.Apply)


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [({"agent": "unit-2"}, "misaddressed"), ({"expires_at": AT + 99}, "expired")],
)
def test_what_is_for_another_or_too_late_is_refused(fields: dict[str, Any], outcome: str) -> None:
    one = holding()
    assert one.apply(2, B, base=A, **fields).outcomes() == [outcome]
    assert [told["reason"] for told in one.told("refused")] == [outcome]


def test_the_same_message_twice_is_a_replay_unless_the_broker_brings_it_again() -> None:
    one = holding()
    command = one.command("wake", 0, {})
    assert one.on(said.CommandCame(1, command)).outcomes() == ["woken"]
    assert one.on(said.CommandCame(2, command, is_redelivered=True)).outcomes() == ["repeated"]
    assert not one.told("refused")
    assert one.on(said.CommandCame(3, command)).outcomes() == ["replayed"]


@pytest.mark.parametrize(
    "body", [{}, {"base": A, "target": "b", "change": None}, {"base": A, "target": B, "change": "?"}]
)
def test_a_command_that_names_no_state_is_refused(body: dict[str, Any]) -> None:
    one = holding()
    assert one.on(said.CommandCame(1, one.command("apply", 2, body))).outcomes() == ["malformed"]


def test_thousands_of_refusals_are_one_report_now_and_one_later() -> None:
    one = holding()
    reports = []
    for number in range(1_000):
        reports += one.on(said.CommandRefused(number, "forged")).told("refused")
    assert [told["count"] for told in reports] == [1]
    assert one.machine.due_at() <= one.now + REFUSED_SECONDS
    reports = one.on(said.Ticked(), after=REFUSED_SECONDS).told("refused")
    assert [told["count"] for told in reports] == [999]


def test_what_the_broker_brings_again_when_it_is_too_late_is_nobodys_fault() -> None:
    one = holding()
    command = one.command("wake", 0, {}, expires_at=AT)
    assert one.on(said.CommandCame(1, command, is_redelivered=True)).outcomes() == ["expired"]
    assert not one.told("refused")


def test_a_newer_state_supersedes_what_waits_behind_the_one_being_applied() -> None:
    one = holding()
    one.apply(2, B, base=A)
    assert not one.apply(3, C, base=B).all_of(asked.Apply)
    one.apply(4, A, base=B)
    assert one.outcomes() == ["superseded"]
    one.applied(2, B)
    assert one.one(asked.Apply).generation == 4


def test_the_same_state_under_another_number_costs_the_engine_nothing() -> None:
    one = holding()
    apply = one.apply(3, A, base=A).one(asked.Apply)
    assert apply.content is None
    assert one.applied(3, A).outcomes() == ["applied"]
    assert [told["generation"] for told in one.proved().told("applied")] == [3]


def test_the_same_state_under_another_number_is_given_to_an_engine_that_holds_another_before_it_is_told() -> None:
    one = driven(Held(6, A))
    one.on(said.Started()).see(B)
    assert one.on(said.Pulled(8, A, None)).one(asked.Apply).content is None
    one.applied(8, A)
    assert one.one(asked.Restore) is not None
    assert not one.all_of(asked.Prove)
    assert one.on(said.Restored("e1")).one(asked.Prove) is not None
    one.proved(Proof("e1", 1, "ns", 2, 10, 100, AT))
    assert [report.kind for report in one.one(asked.Tell).reports] == ["purged", "applied"]


def test_a_state_that_is_held_is_acknowledged_again_unless_that_is_on_its_way() -> None:
    one = holding()
    one.on(said.Spooled(3))
    one.answered(1, A, "usage")
    one.apply(1, A, base=C)
    assert one.outcomes() == ["held"]
    assert len(one.proved().told("applied")) == 1, "that usage waits to be sent is its own matter"
    one.apply(1, A, base=C)
    assert one.outcomes() == ["held"]
    assert not one.all_of(asked.Prove)


def test_a_rejected_state_is_told_once_and_not_tried_again_on_that_engine() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.on(said.ApplyFailed(2, B, "rejected", "no such format"))
    assert [told["reason"] for told in one.told("rejected")] == ["no such format"]
    assert one.outcomes() == ["rejected"]
    one.answered(2, B).on(said.Ticked(), after=COMMAND_WAIT_SECONDS)
    assert not one.all_of(asked.Pull)
    assert one.apply(2, B, base=A).outcomes() == ["rejected"]
    assert one.engine_state == "ready", "with what it held"


def test_after_a_change_that_missed_everything_is_pulled() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.on(said.ApplyFailed(2, B, "mismatch", "another state"))
    assert one.one(asked.Pull) is not None
    assert one.outcomes() == ["pulled"]


def test_an_engine_that_went_away_while_it_applied_may_hold_more_than_the_store() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.on(said.ApplyFailed(2, B, "away", "dead"))
    assert one.engine_state == "down"
    one.see(B)
    assert not one.all_of(asked.Restore)


# Proofs


def test_an_acknowledgement_waits_for_purges_that_wait_for_sequences() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.applied(2, B)
    begun = Proof("e1", 1, "ns", 2, 3, 30, AT, is_final=False)
    assert not one.proved(begun).all_of(asked.Tell)
    assert one.on(said.Ticked(), after=1).one(asked.Prove) is not None
    one.proved(begun, Proof("e1", 2, "ns", 2, 10, 100, AT))
    assert one.told("purged")[0]["blocks"] == 10
    assert one.told("applied")


def test_a_purge_that_takes_too_long_is_told_as_far_as_it_is_proven_and_never_twice() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.applied(2, B)
    begun = Proof("e1", 1, "ns", 2, 3, 30, AT, is_final=False)
    one.proved(begun)
    one.on(said.Ticked(), after=PROOF_SECONDS)
    assert one.proved(begun).told("purged")[0]["blocks"] == 3
    one.apply(3, C, base=B)
    one.applied(3, C)
    one.proved(Proof("e1", 2, "ns", 2, 10, 100, AT))
    assert not one.told("purged")
    assert one.told("applied")


def test_what_is_told_before_it_is_over_is_not_told_again_after_a_crash() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.applied(2, B)
    begun = Proof("e1", 1, "ns", 2, 3, 30, AT, is_final=False)
    one.proved(begun)
    one.on(said.Ticked(), after=PROOF_SECONDS)
    one.proved(begun)
    ledger, mark = one.one(asked.Keep).ledger, one.one(asked.Tell).proofs_told
    kinds = [type(effect) for effect in one.effects]
    assert kinds.index(asked.Keep) < kinds.index(asked.Tell)
    rest = Proof("e1", 2, "ns", 2, 10, 100, AT)
    again = driven(Held(2, B), ledger=ledger, proofs_told=mark)
    again.on(said.Started()).see(B)
    assert again.proved(rest).told("applied")
    assert not again.told("purged")
    between = driven(Held(2, B), ledger=ledger, proofs_told=("e1", 0))  # the ledger was written, the spool was not
    between.on(said.Started()).see(B)
    assert between.proved(begun, rest).told("purged")[0]["blocks"] == 10


def test_nobody_could_look_is_not_that_nothing_was_there() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.applied(2, B)
    one.on(said.Proved(None))
    one.on(said.Ticked(), after=PROOF_SECONDS + 1)
    assert one.on(said.Proved(None)).told("applied") == []
    assert one.on(said.Ticked(), after=1).one(asked.Prove) is not None
    assert one.proved(Proof("e1", 1, "ns", 2, 10, 100, AT)).told("purged")


def test_a_holder_that_was_lost_has_all_the_time_again_to_prove() -> None:
    one = holding()
    one.apply(2, B, base=A)
    one.applied(2, B)
    begun = Proof("e1", 1, "ns", 2, 3, 30, AT, is_final=False)
    one.proved(begun)
    one.on(said.HolderSeen(None, "too busy"), after=PROOF_SECONDS)
    one.see(B)
    assert one.one(asked.Prove) is not None
    assert not one.proved(begun).told("applied")


# The control plane


def test_an_answer_and_a_snapshot_that_differ_are_no_reason_to_pull_without_a_pause() -> None:
    one = holding(6)
    one.answered(7, B).on(said.Ticked(), after=COMMAND_WAIT_SECONDS)
    assert one.one(asked.Pull) is not None
    assert not one.on(said.Pulled(6, A, None)).all_of(asked.Pull)
    assert one.on(said.Ticked(), after=COMMAND_WAIT_SECONDS).one(asked.Pull) is not None


def test_what_an_answer_names_is_pulled_when_no_command_has_brought_it_in_a_second() -> None:
    one = holding()
    one.answered(2, B)
    assert not one.all_of(asked.Pull)
    assert one.machine.due_at() <= one.now + COMMAND_WAIT_SECONDS
    assert one.on(said.Ticked(), after=COMMAND_WAIT_SECONDS).one(asked.Pull) is not None


def test_an_answer_that_names_an_older_state_is_no_reason_to_do_anything() -> None:
    one = holding(5)
    one.answered(4, B).on(said.Ticked(), after=COMMAND_WAIT_SECONDS)
    assert not one.all_of(asked.Pull)


def test_after_a_long_silence_it_pulls() -> None:
    one = holding()
    one.on(said.Ticked(), after=1)
    one.on(said.SendFailed("away"), after=QUIET_SECONDS)
    assert one.one(asked.Pull).have == A


def test_it_sends_ever_more_seldom_while_nobody_answers() -> None:
    one = driven()
    one.on(said.Started())
    waits = []
    for _ in range(10):
        one.on(said.SendFailed("away"))
        wait = one.machine._send_retry.at - one.now
        one.on(said.Ticked(), after=wait)
        assert one.one(asked.Send) is not None
        waits.append(wait)
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]


def test_it_waits_as_long_as_the_control_plane_asks_for() -> None:
    one = driven()
    one.on(said.Started())
    one.on(said.SendFailed("too much at once", wait_seconds=17.0))
    assert not one.on(said.Ticked(), after=16.9).all_of(asked.Send)
    assert one.on(said.Ticked(), after=0.1).one(asked.Send) is not None


def test_what_was_spooled_besides_is_sent_at_once_and_counted() -> None:
    one = holding()
    one.on(said.Ticked(), after=1)
    one.on(said.Answered(1, A, 5.0, (), 0))
    one.on(said.Ticked(), after=1)
    one.on(said.Answered(1, A, 5.0, (), 0))
    assert one.on(said.Spooled(2), after=0.1).one(asked.Send) is not None
    assert one.machine.heartbeat({})["spooled"] == 2


def test_heartbeats_follow_the_cadence_that_the_server_sets() -> None:
    one = holding()
    assert one.on(said.Ticked(), after=1).one(asked.Send) is not None
    one.on(said.Answered(1, A, 5.0, ("fleet",), 0))
    assert one.machine.watch == ("fleet",)
    assert one.machine.due_at() <= one.now + 5
    assert not one.on(said.Ticked(), after=0.4).all_of(asked.Send)
    assert one.on(said.Ticked(), after=0.1).one(asked.Send) is not None, (
        "the last one that was due by the cadence before"
    )
    one.on(said.Answered(1, A, 5.0, (), 0))
    assert not one.on(said.Ticked(), after=4.9).all_of(asked.Send)
    assert one.on(said.Ticked(), after=0.1).one(asked.Send) is not None


def test_what_did_not_fit_into_one_request_is_sent_with_the_next() -> None:
    one = holding()
    one.on(said.Ticked(), after=1)
    assert one.answered(1, A, spooled=12).one(asked.Send) is not None


# Operations


def test_an_operation_is_kept_before_it_is_told_and_done_once() -> None:
    one = holding()
    assert one.operation("op-1").one(asked.Operate).deed == "drain"
    assert not one.operation("op-1").all_of(asked.Operate)
    one.on(said.Operated("op-1", True, {"left": 0}))
    kinds = [type(effect) for effect in one.effects]
    assert kinds.index(asked.Keep) < kinds.index(asked.Tell)
    assert one.outcomes() == ["operated", "operated"]
    assert one.one(asked.Keep).ledger.is_draining
    assert one.told("receipt")[0]["result"] == {"left": 0}
    one.answered(1, A)
    assert one.operation("op-1").outcomes() == ["repeated"]
    assert len(one.told("receipt")) == 1


def test_a_receipt_is_told_again_whatever_else_waits_to_be_told() -> None:
    one = holding()
    one.operation("op-1")
    one.on(said.Operated("op-1", True, {}))
    one.on(said.Spooled(3))
    one.answered(1, A, "receipt", "usage")
    assert not one.operation("op-1").told("receipt"), "the first still waits to be sent"
    one.answered(1, A, "usage")
    assert len(one.operation("op-1").told("receipt")) == 1, "the first arrived; that usage waits is its own matter"


def test_an_operation_that_was_done_before_a_restart_is_not_done_again() -> None:
    receipt = {"operation": "op-1", "ok": True, "at": AT, "result": {}}
    one = driven(Held(1, A), ledger=Ledger({"op-1": receipt}))
    one.on(said.Started())
    assert one.operation("op-1").told("receipt") == [receipt]


def test_an_operation_after_its_deadline_is_refused() -> None:
    one = holding()
    assert one.operation("op-1", seconds=-1).outcomes() == ["expired"]


def test_a_failed_drain_is_no_draining() -> None:
    one = holding()
    one.operation("op-1")
    one.on(said.Operated("op-1", False, {"why": "away"}))
    assert not one.one(asked.Keep).ledger.is_draining


def test_an_operation_that_nobody_answered_has_no_receipt_and_is_done_when_it_is_asked_for_again() -> None:
    one = holding()
    one.operation("op-1")
    one.on(said.Operated("op-1", False, {"why": "restarting"}, is_away=True))
    assert (one.outcomes(), one.told("receipt")) == (["away"], [])
    assert one.operation("op-1").one(asked.Operate).operation == "op-1"
    assert one.on(said.Operated("op-1", True, {})).told("receipt")[0]["ok"]


def test_drains_and_resumes_come_one_after_another_and_nothing_undoes_the_last() -> None:
    one = driven(Held(1, A), ledger=Ledger(is_draining=True))
    one.on(said.Started()).see(A, state="draining")
    one.on(said.Pulled(1, A, None)).proved()
    one.operation("op-1", "resume")
    assert one.one(asked.Operate).deed == "resume"
    assert not one.see(A).all_of(asked.Restore), "it is ready because it was resumed"
    assert not one.operation("op-2", "drain").all_of(asked.Operate)
    assert one.on(said.Operated("op-1", True, {})).one(asked.Operate).deed == "drain"


def test_a_resume_waits_for_a_restore_that_drains() -> None:
    one = driven(Held(1, A), ledger=Ledger(is_draining=True))
    one.on(said.Started())
    assert one.see(EMPTY).one(asked.Restore).is_draining
    assert not one.operation("op-1", "resume").all_of(asked.Operate)
    assert one.on(said.Restored("e1")).one(asked.Operate).deed == "resume"


def test_a_drain_that_waited_past_its_deadline_is_not_done() -> None:
    one = holding()
    one.operation("op-1", "resume")
    one.operation("op-2", "drain", seconds=5)
    one.on(said.Ticked(), after=6)
    assert not one.on(said.Operated("op-1", True, {})).all_of(asked.Operate)
    assert one.outcomes() == ["operated", "expired"]


# What it is


def test_what_it_is_is_told_when_it_changes() -> None:
    one = holding()
    assert one.on(said.AboutSeen({"version": "1"})).told("about") == [{"version": "1"}]
    assert not one.on(said.AboutSeen({"version": "1"})).all_of(asked.Tell)
    assert one.on(said.AboutSeen({"version": "2"})).one(asked.Keep).ledger.about == {"version": "2"}


def test_what_it_is_is_reported_after_each_start() -> None:
    """A control plane that was upgraded meanwhile may understand more of it."""
    again = driven(Held(1, A), ledger=Ledger(about={"version": "1"}))
    again.on(said.Started())
    assert again.on(said.AboutSeen({"version": "1"})).told("about") == [{"version": "1"}]
    assert not again.on(said.AboutSeen({"version": "1"})).all_of(asked.Tell)


def test_heartbeats_are_numbered_and_well_formed() -> None:
    one = driven()
    first, second = one.machine.heartbeat({}), one.machine.heartbeat({})
    heartbeat_check(first)
    assert (first["sequence"], second["sequence"], first["engine"]["state"]) == (1, 2, "down")
