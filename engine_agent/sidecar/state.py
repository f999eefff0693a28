"""The state machine of a sidecar: it decides what to apply, pull and report, and when. No I/O and no clock.

Events (`events.py`) come in with `now`, on a clock that never goes backwards, and `at`, unix seconds by the control
plane's clock. Effects (`effects.py`) go out, to be run in order. Each `Apply`, `Restore`, `Pull`, `Prove`, `Operate`
and `Send` is answered by one of the events that name it; other events may come before the answer.

`Keep` and `Tell` are durable before the next effect runs, and a snapshot is durable before `Applied` comes. The next
start repairs a crash between any two effects: the sidecar reports the stored state again and pulls the newest.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Any

from engine_agent.contracts.protocol import root_hash
from engine_agent.contracts.wire import Command, Report, ReportKind
from engine_agent.sidecar.commands import Wanted, operation_wanted, state_wanted
from engine_agent.sidecar.effects import (
    Apply,
    Effect,
    Held,
    Keep,
    Ledger,
    Log,
    Operate,
    Outcome,
    Prove,
    Pull,
    Restore,
    Send,
    Settle,
    Tell,
)
from engine_agent.sidecar.events import (
    AboutSeen,
    Answered,
    Applied,
    ApplyFailed,
    CommandCame,
    CommandRefused,
    Event,
    HolderSeen,
    Operated,
    Proved,
    Pulled,
    PullFailed,
    Restored,
    SendFailed,
    Spooled,
)
from engine_agent.sidecar.holder import HolderState, Proof
from engine_agent.sidecar.proofs import are_complete, proof_reports

QUIET_SECONDS = 30.0  # after so long without a message: pull
COMMAND_WAIT_SECONDS = 1.0  # for the command with the state that an answer named; then pull
PROOF_SECONDS = 30.0  # wait for purges that wait for running sequences; then report what is proven
PROOF_LOOK_SECONDS = 0.25
# Between two reports of one kind of refusal, so that thousands of forged commands cannot fill the spool.
REFUSED_SECONDS = 5.0
FIRST_CADENCE_SECONDS = 0.5
RETRY_SECONDS = (0.5, 30.0)  # after failures: doubling from the first to the second
STEERING = ("drain", "resume")
MOST_REMEMBERED = 4_096  # ids of commands, receipts of operations
EMPTY = (None, root_hash("engine", {}), root_hash("gateway", {}))  # hashes of a holder that has just started


@dataclass(slots=True)
class _Retry:
    at: float = 0.0
    failures: int = 0  # in a row

    def failed(self, now: float, *, least: float = 0.0) -> None:
        first, longest = RETRY_SECONDS
        self.at = now + max(least, min(longest, first * 2 ** min(self.failures, 16)))
        self.failures += 1

    def worked(self) -> None:
        self.at, self.failures = 0.0, 0


@dataclass(slots=True)
class _Goal:
    """A state to apply, and the messages that wait for it."""

    held: Held
    content: bytes | None = field(repr=False)
    base: str | None  # None: the content is a whole snapshot
    deliveries: list[int] = field(default_factory=list)


def _purge(proof: Proof) -> str:
    return f"{proof.boot} {proof.namespace} {proof.epoch}"


def _asked_for_again(report: Report) -> str:
    """Return the key of a report that a repeated message causes again, unless the report still waits to be sent."""
    match report.kind:
        case "receipt":
            return str(report.told["operation"])
        case "applied":
            return str(report.told["hash"])
    return ""


class Sidecar:
    """The state machine of one agent.

    `held` comes from the store, `proofs_told` and `spooled` from the spool.
    """

    def __init__(
        self,
        agent: str,
        *,
        boot: str,
        held: Held | None = None,
        ledger: Ledger | None = None,
        proofs_told: tuple[str, int] | None = None,
        spooled: int = 0,
    ) -> None:
        self.agent, self.boot, self.held, self.ledger = agent, boot, held, ledger or Ledger()
        self.holder: HolderState | None = None
        self.why_away = "it was not seen yet"
        self.desired: Held | None = None  # by the last answer
        self.watch: tuple[str, ...] = ()
        self.cadence_seconds = FIRST_CADENCE_SECONDS
        self.spooled, self._proofs_told = spooled, proofs_told or ("", 0)
        self._waiting: set[tuple[ReportKind, str]] = set()  # reports that may not have arrived; see _asked_for_again
        self._sequence = 0
        self._seen: dict[str, float] = {}  # expiry by command id, until then
        self._goal: _Goal | None = None  # being applied
        self._next: _Goal | None = None  # to be applied after `_goal`
        self._is_sending = self._is_pulling = self._is_restoring = self._is_proving = False
        self._is_proof_old = False  # the proofs being fetched were requested before the current state was applied
        self._is_about_reported = False
        self._must_send = self._must_pull = True
        self.has_pulled = False  # since the start; before that, the holder's state may be newer than the stored one
        self._ready_boot = ""  # boot of the holder that has the newest known state
        self._rejected: dict[str, str] = {}  # reason by hash, of the running holder
        self._told: Held | None = None
        self._applied_seconds = 0.0
        self._proving_since: float | None = None
        self._prove_at = 0.0
        self._operating: dict[str, tuple[str, list[int]]] = {}  # action and messages, by operation
        self._steering = ""  # the drain or resume operation that is running
        # Waiting drain and resume operations, with their deadlines.
        self._to_steer: deque[tuple[Operate, float]] = deque()
        self._refused: dict[str, tuple[int, str]] = {}
        self._refused_told_at: dict[str, float] = {}
        self._beat_at = self._heard_at = self._desired_at = 0.0
        self._send_retry, self._pull_retry = _Retry(), _Retry()
        self._effects: list[Effect] = []
        self._now = self._at = 0.0

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        self._now, self._at, self._effects = now, at, []
        if handler := self._handlers.get(type(event)):
            handler(self, event)
        self._go_on()
        return self._effects

    def due_at(self) -> float:
        """Return when the next `Ticked` is due at the latest."""
        instants = []
        if not self._is_sending:
            instants.append(max(self._send_retry.at, 0.0 if self._must_send else self._beat_at))
        if not self._is_pulling and self._can_pull:
            instants.append(max(self._pull_retry.at, self._pull_due_at()))
        if self._must_prove and not self._is_proving:
            instants.append(self._prove_at)
        instants += [self._refused_told_at.get(reason, 0.0) + REFUSED_SECONDS for reason in self._refused]
        return min(instants, default=self._now + QUIET_SECONDS)

    def _pull_due_at(self) -> float:
        if self._must_pull:
            return 0.0
        overdue_at = self._desired_at + COMMAND_WAIT_SECONDS if self._is_behind else inf
        return min(self._heard_at + QUIET_SECONDS, overdue_at)

    def heartbeat(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the next heartbeat in wire format."""
        self._sequence += 1
        state, reason = self.engine_state
        holder = self.holder or HolderState("", state)
        return {
            "boot": self.boot,
            "sequence": self._sequence,
            "applied": None if self.held is None else {"hash": self.held.hash, "generation": self.held.generation},
            "engine": {"boot": holder.boot, "state": state, "why": reason[:400], "hash": holder.hash},
            "load": dict(holder.load),
            "pool": dict(holder.pool),
            "counters": dict(counters),
            "spooled": self.spooled,
        }

    @property
    def engine_state(self) -> tuple[str, str]:
        """The holder's state for a heartbeat, and the reason. It is "ready" only with the newest available state."""
        if self.holder is None:
            return "down", self.why_away
        if self.held is None:
            return "starting", self._rejected.get(self.desired.hash if self.desired else "", "it has no snapshot yet")
        if reason := self._rejected.get(self.held.hash):
            return "failed", f"it rejects the snapshot that it is to hold: {reason}"
        if self._ready_boot != self.holder.boot:
            return "starting", "it is being brought to its snapshot"
        return self.holder.state, self.holder.why

    # Commands

    def _command_came(self, event: CommandCame) -> None:
        command, delivery = event.command, event.delivery
        if command.agent != self.agent:
            return self._refuse(delivery, "misaddressed", f"for {command.agent}")
        if self._at >= command.expires_at:
            if event.is_redelivered:  # it was valid when it first came
                return self._settle(delivery, "expired")
            return self._refuse(delivery, "expired", f"{command.id}, {self._at - command.expires_at:.0f} s ago")
        if command.id in self._seen:
            if event.is_redelivered:
                return self._settle(delivery, "repeated")
            return self._refuse(delivery, "replayed", command.id)
        self._remember(command)
        self._heard_at = self._now
        if command.deed == "apply":
            self._state_came(delivery, command)
        elif command.deed == "operation":
            self._operation_came(delivery, command)
        else:
            self._must_send = True
            self._settle(delivery, "woken")
        return None

    def _remember(self, command: Command) -> None:
        if len(self._seen) >= MOST_REMEMBERED:
            self._seen = {name: until for name, until in self._seen.items() if until > self._at}
        self._seen[command.id] = command.expires_at

    def _refuse(self, delivery: int, reason: Outcome, detail: str) -> None:
        count, _ = self._refused.get(reason, (0, ""))
        self._refused[reason] = (count + 1, detail[:200])
        self._settle(delivery, reason)

    def _state_came(self, delivery: int, command: Command) -> None:
        request = state_wanted(command.body)
        if request is None:
            return self._refuse(delivery, "malformed", f"{command.id}: no state is named")
        goal = Held(command.generation, request.target)
        if self.held and goal.generation < self.held.generation:
            detail = f"generation {goal.generation}, {self.held.generation} is held"
            return self._refuse(delivery, "older", detail)
        if goal == self.held:
            # Our acknowledgement arrived, and the control plane lost it.
            if ("applied", goal.hash) not in self._waiting:
                self._told = None
            return self._settle(delivery, "held")
        if request.target in self._rejected:
            return self._settle(delivery, "rejected")
        return self._aim(delivery, goal, request)

    def _aim(self, delivery: int, goal: Held, request: Wanted) -> None:
        for pending in (self._goal, self._next):
            if pending and pending.held == goal:
                pending.deliveries.append(delivery)
                return
            if pending and goal.generation < pending.held.generation:
                return self._settle(delivery, "superseded")
        self._desire(goal)
        if request.change is None and not (self.held and goal.hash == self.held.hash):
            self._must_pull = True
            return self._settle(delivery, "pulled")
        return self._go_next(_Goal(goal, request.change, request.base or "", [delivery]))

    def _go_next(self, goal: _Goal) -> None:
        if self._next:
            self._settle_all(self._next.deliveries, "superseded")
        self._next = goal

    def _operation_came(self, delivery: int, command: Command) -> None:
        request = operation_wanted(command.body)
        if request is None:
            return self._refuse(delivery, "malformed", f"{command.id}: no operation is named")
        if receipt := self.ledger.receipts.get(request.operation):
            if ("receipt", request.operation) not in self._waiting:
                self._tell(Report("receipt", receipt))
            return self._settle(delivery, "repeated")
        if request.operation in self._operating:
            self._operating[request.operation][1].append(delivery)
            return None
        if request.deadline <= self._at:
            return self._refuse(delivery, "expired", f"operation {request.operation}")
        self._operating[request.operation] = (request.deed, [delivery])
        effect = Operate(request.operation, request.deed, request.arguments)
        if request.deed in STEERING:
            self._to_steer.append((effect, request.deadline))
        else:
            self._do(effect)
        return None

    def _operated(self, event: Operated) -> None:
        ledger = self.ledger
        action, deliveries = self._operating.pop(event.operation, ("", []))
        if event.operation == self._steering:
            self._steering = ""
        if event.is_away:
            return self._settle_all(deliveries, "away")
        receipt = {"operation": event.operation, "ok": event.ok, "at": self._at, "result": dict(event.result)}
        receipts = {**ledger.receipts, event.operation: receipt}
        newest_receipts = dict(islice(receipts.items(), max(0, len(receipts) - MOST_REMEMBERED), None))
        is_draining = action == "drain" if event.ok and action in ("drain", "resume") else ledger.is_draining
        self._keep(replace(ledger, receipts=newest_receipts, is_draining=is_draining))
        self._tell(Report("receipt", receipt))
        return self._settle_all(deliveries, "operated")

    # The desired state

    def _desire(self, goal: Held) -> None:
        if goal != self.desired:
            self.desired, self._desired_at = goal, self._now

    def _applied(self, event: Applied) -> None:
        goal, self._goal = self._goal, None
        self.held, self._applied_seconds = Held(event.generation, event.hash), event.seconds
        self._is_proof_old = self._is_proving
        self.has_pulled = self.has_pulled or goal is None or goal.base is None
        # Otherwise the holder may have another state, and is restored.
        was_handed_over = goal is None or goal.content is not None
        if was_handed_over and self.holder and self.holder.boot == event.boot:
            self.holder = replace(self.holder, hash=event.hash)
        self._settle_all(goal.deliveries if goal else [], "applied")

    def _apply_failed(self, event: ApplyFailed) -> None:
        goal, self._goal = self._goal, None
        is_change = goal is not None and goal.base is not None
        deliveries = goal.deliveries if goal else []
        if event.kind == "away":
            self._lose(event.why)
            self._must_pull, self.has_pulled = True, False  # the holder may have applied it before it failed to answer
            self._pull_retry.failed(self._now)
            self._settle_all(deliveries, "away")
        elif event.kind == "rejected" or not is_change:
            self._reject(Held(event.generation, event.hash), event.why)
            self._settle_all(deliveries, "rejected")
        else:
            self._must_pull = True
            self._settle_all(deliveries, "pulled")

    def _reject(self, goal: Held, reason: str) -> None:
        self._rejected[goal.hash] = reason
        rejection = {"generation": goal.generation, "hash": goal.hash, "at": self._at, "reason": reason[:400]}
        self._tell(Report("rejected", rejection))
        self._do(Log("error", f"generation {goal.generation} is rejected: {reason}"))

    def _pulled(self, event: Pulled) -> None:
        self._is_pulling = False
        self._pull_retry.worked()
        # If it still differs from the desired state, wait before the next pull.
        self._heard_at = self._desired_at = self._now
        goal = Held(event.generation, event.hash)
        if self.held and goal.generation < self.held.generation:
            self.has_pulled = True
            self._do(Log("warning", f"generation {goal.generation} is older than {self.held.generation}: not applied"))
        elif goal == self.held:
            self.has_pulled = True
        elif event.content is not None or (self.held and goal.hash == self.held.hash):
            self._desire(goal)
            self._go_next(_Goal(goal, event.content, None))

    def _pull_failed(self, event: PullFailed) -> None:
        self._is_pulling = False
        self._must_pull = True
        if not self._pull_retry.failures:
            self._do(Log("warning", f"the snapshot cannot be pulled: {event.why}"))
        self._pull_retry.failed(self._now)

    # The holder

    def _holder_seen(self, event: HolderSeen) -> None:
        if event.state is None:
            return self._lose(event.why)
        previous, self.holder = self.holder, event.state
        if previous is None or previous.boot != event.state.boot:
            self._rejected = {}  # the new process may accept it
            self._proving_since = None
            self._pull_retry.worked()
        self._must_send |= previous is None or (previous.boot, previous.state) != (event.state.boot, event.state.state)
        return None

    def _lose(self, reason: str) -> None:
        self._must_send |= self.holder is not None
        self.holder, self.why_away, self._proving_since = None, reason, None

    def _restored(self, event: Restored) -> None:
        self._is_restoring = False
        self._is_proof_old = self._is_proving
        if event.kind == "away":
            self._lose(event.why)
        elif event.kind and self.held:
            self._reject(self.held, event.why)
            self._must_pull = True
        elif self.holder and self.holder.boot == event.boot:
            hash_ = self.held.hash if self.held else self.holder.hash
            state = "draining" if self.ledger.is_draining else self.holder.state
            self.holder = replace(self.holder, hash=hash_, state=state)
            self._must_send = True

    def _about_seen(self, event: AboutSeen) -> None:
        """Report the description if it changed, and after each start: an upgraded control plane may read more of it."""
        if event.about != self.ledger.about or not self._is_about_reported:
            self._is_about_reported = True
            self._tell(Report("about", event.about))
            self._keep(replace(self.ledger, about=event.about))

    def _proved(self, event: Proved) -> None:
        self._is_proving = False
        if self._is_proof_old:
            self._is_proof_old = False
            return  # the proofs are requested again
        if event.proofs is None:  # without an answer, the proofs are unknown, not absent
            self._prove_at = self._now + PROOF_LOOK_SECONDS
            return
        since = self._now if self._proving_since is None else self._proving_since
        is_over = self._now >= since + PROOF_SECONDS
        proofs = [proof for proof in event.proofs if self._is_untold(proof)]
        if not are_complete(proofs) and not is_over:
            self._prove_at = self._now + PROOF_LOOK_SECONDS
        elif self._must_prove:
            self._tell_applied(proofs)

    def _is_untold(self, proof: Proof) -> bool:
        """Return whether the proof must still be reported.

        The ledger is written before the spool, so its entry counts only once the spool has that proof's number.
        """
        boot, number = self._proofs_told
        reported_number = self.ledger.partly_told.get(_purge(proof))
        return reported_number is None or proof.boot != boot or number < reported_number

    def _keep_partly_told(self, proofs: Sequence[Proof]) -> None:
        last = proofs[-1]
        partly_told = {name: at for name, at in self.ledger.partly_told.items() if name.startswith(f"{last.boot} ")}
        partly_told |= {_purge(proof): last.number for proof in proofs}
        self._keep(replace(self.ledger, partly_told=partly_told))

    def _tell_applied(self, proofs: Sequence[Proof]) -> None:
        assert self.held is not None
        if not are_complete(proofs):
            self._keep_partly_told(proofs)
        self._told, self._proving_since = self.held, None
        applied = {
            "generation": self.held.generation,
            "hash": self.held.hash,
            "at": self._at,
            "engine_boot": self.holder.boot if self.holder else None,
            "seconds": round(self._applied_seconds, 6),
        }
        last_proof = (proofs[-1].boot, proofs[-1].number) if proofs else None
        self._tell(*proof_reports(proofs), Report("applied", applied), proofs_told=last_proof)

    # The control plane

    def _answered(self, event: Answered) -> None:
        self._is_sending = False
        self._send_retry.worked()
        self._heard_at, self.spooled = self._now, event.spooled
        self.cadence_seconds, self.watch = event.cadence_seconds, event.watch
        self._beat_at = min(self._beat_at, self._now + event.cadence_seconds)
        self._must_send |= event.spooled > 0
        self._waiting = {report_key for report_key in self._waiting if report_key[0] in event.waiting}
        if event.desired_generation is not None and event.desired_hash:
            self._desire(Held(event.desired_generation, event.desired_hash))

    def _send_failed(self, event: SendFailed) -> None:
        self._is_sending = False
        if not self._send_retry.failures:
            self._do(Log("warning", f"the control plane cannot be told: {event.why}"))
        minimum_wait_seconds = max(event.wait_seconds, RETRY_SECONDS[1] if event.is_final else 0.0)
        self._send_retry.failed(self._now, least=minimum_wait_seconds)
        self._must_send = True

    def _spooled(self, event: Spooled) -> None:
        self.spooled += event.count
        self._must_send = True

    # Effects that follow from the state, after any event

    def _go_on(self) -> None:
        self._go_apply()
        self._go_restore()
        self._go_steer()
        self._go_ready()
        self._go_pull()
        self._go_prove()
        self._go_tell_refused()
        self._go_send()

    @property
    def _is_busy(self) -> bool:
        """Return whether the holder is applying or restoring; it does one at a time."""
        return self._goal is not None or self._is_restoring

    def _go_apply(self) -> None:
        if self._is_busy or self._next is None:
            return
        goal, self._next = self._next, None
        applied = self.held
        if applied and goal.held.generation < applied.generation:
            self._settle_all(goal.deliveries, "superseded")
        elif applied and goal.held == applied:
            self._settle_all(goal.deliveries, "held")
        elif goal.content is None or (applied and goal.held.hash == applied.hash):
            self._begin(replace(goal, content=None))
        elif goal.base is not None and (applied is None or applied.hash != goal.base):
            self._must_pull = True
            self._settle_all(goal.deliveries, "pulled")
        else:
            self._begin(goal)

    def _begin(self, goal: _Goal) -> None:
        self._goal = goal
        self._do(Apply(goal.held.generation, goal.held.hash, goal.content, goal.base is not None))

    def _go_restore(self) -> None:
        if self._is_busy or self.holder is None or self._next or self._steering:
            return
        is_away_from_held = self.held is not None and self.holder.hash != self.held.hash
        must_drain = self.ledger.is_draining and self.holder.state == "ready"
        if not is_away_from_held and not must_drain:
            return
        if self.held is not None and self.held.hash in self._rejected:
            return
        if is_away_from_held and self.holder.hash not in EMPTY and not self.has_pulled:
            return  # the holder's state may be newer than the stored one, and must not be set back
        self._is_restoring = True
        self._do(Restore(self.ledger.is_draining))

    def _go_steer(self) -> None:
        """Run drain and resume operations one at a time, and none during a restore, which may drain the holder too."""
        while self._to_steer and not self._steering and not self._is_restoring:
            operate, deadline = self._to_steer.popleft()
            if deadline <= self._at:
                _, deliveries = self._operating.pop(operate.operation)
                self._settle_all(deliveries, "expired")
            else:
                self._steering = operate.operation
                self._do(operate)

    def _go_ready(self) -> None:
        """Mark a restarted holder as ready with the newest state, or with the stored one if pulling fails."""
        if self.holder is None or self.held is None or self.holder.hash != self.held.hash or self._is_busy:
            return
        is_newest = self.has_pulled and not self._is_behind
        if (is_newest or self._pull_retry.failures) and self._ready_boot != self.holder.boot:
            self._ready_boot, self._must_send = self.holder.boot, True

    @property
    def _is_behind(self) -> bool:
        """Return whether an answer or command named a state that is not applied, not rejected and not older."""
        desired, applied = self.desired, self.held
        if desired is None or desired == applied or desired.hash in self._rejected:
            return False
        return applied is None or desired.generation >= applied.generation

    @property
    def _can_pull(self) -> bool:
        return self.holder is not None and not self._is_busy and self._next is None

    def _go_pull(self) -> None:
        if self._is_pulling or not self._can_pull or self._now < self._pull_retry.at:
            return
        waited = self._now >= self._desired_at + COMMAND_WAIT_SECONDS
        is_quiet = self._now >= self._heard_at + QUIET_SECONDS
        if self._must_pull or (self._is_behind and waited) or is_quiet:
            self._is_pulling, self._must_pull = True, False
            self._heard_at = self._now
            self._do(Pull(self.held.hash if self.held else None))

    @property
    def _must_prove(self) -> bool:
        """Return whether the applied state must be reported, with the proofs that belong to it."""
        if self.held is None or self._told == self.held or self.holder is None or self._is_busy:
            return False
        return self.holder.hash == self.held.hash

    def _go_prove(self) -> None:
        if not self._must_prove:
            return
        if self._proving_since is None:
            self._proving_since = self._now
        if not self._is_proving and self._now >= self._prove_at:
            self._is_proving = True
            self._do(Prove(*self._proofs_told))

    def _go_tell_refused(self) -> None:
        for reason, (count, detail) in list(self._refused.items()):
            if self._now >= self._refused_told_at.get(reason, -REFUSED_SECONDS) + REFUSED_SECONDS:
                del self._refused[reason]
                self._refused_told_at[reason] = self._now
                self._tell(Report("refused", {"reason": reason, "what": detail, "at": self._at, "count": count}))

    def _go_send(self) -> None:
        if self._is_sending or self._now < self._send_retry.at:
            return
        if self._must_send or self._now >= self._beat_at:
            self._is_sending, self._must_send = True, False
            self._beat_at = self._now + self.cadence_seconds
            self._do(Send())

    # Effects

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _tell(self, *reports: Report, proofs_told: tuple[str, int] | None = None) -> None:
        self.spooled += len(reports)
        self._proofs_told = proofs_told or self._proofs_told
        self._waiting |= {(report.kind, key) for report in reports if (key := _asked_for_again(report))}
        self._must_send = True
        self._do(Tell(reports, proofs_told))

    def _keep(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._do(Keep(ledger))

    def _settle(self, delivery: int, outcome: Outcome) -> None:
        self._do(Settle(delivery, outcome))

    def _settle_all(self, deliveries: Sequence[int], outcome: Outcome) -> None:
        for delivery in deliveries:
            self._settle(delivery, outcome)

    def _command_refused(self, event: CommandRefused) -> None:
        self._refuse(event.delivery, event.reason, event.what)

    _handlers: Mapping[type[Any], Callable[["Sidecar", Any], None]] = {
        CommandCame: _command_came,
        CommandRefused: _command_refused,
        Applied: _applied,
        ApplyFailed: _apply_failed,
        Restored: _restored,
        Pulled: _pulled,
        PullFailed: _pull_failed,
        Proved: _proved,
        Operated: _operated,
        HolderSeen: _holder_seen,
        AboutSeen: _about_seen,
        Answered: _answered,
        SendFailed: _send_failed,
        Spooled: _spooled,
    }
