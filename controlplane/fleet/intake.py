"""Decide what a batch of an agent's reports changes, from plain values: no database, no clock.

An agent is believed only as far as it can prove. It acknowledges a state by generation and hash together. Only a state
that was really desired at that generation completes a step of an operation; any other is stored as the agent's claim,
which shows as drift. Receipts count only for steps that the agent owes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.fleet.about import about_read
from controlplane.fleet.arrivals import MOST, Arrival, Received, arrival_of
from controlplane.fleet.errors import MalformedRequest
from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import Batch, Report

STATE = "state"  # the action of steps that an acknowledged generation completes
# No agent can be this far ahead of its desired generation, not even after we restored an old backup.
MOST_AHEAD = 2**32
MOST_RESULT_BYTES = 16_384
MOST_NOTE_CHARACTERS = 400
PROBLEMS_KEPT = 20  # of a check's problems, if its result is too large to keep
PROBLEM_LENGTH = 200


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step of an operation that this agent owes.

    It concerns one namespace, one organisation or, if neither is set, everything.
    """

    id: int
    operation: str
    deed: str
    generation: int | None = None  # for the action `state`: the generation that completes it; None if not planned yet
    namespace: int | None = None
    organisation: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """An agent's report of how much of a namespace it has purged, until the matching acknowledgement arrives."""

    namespace: int
    organisation: int
    epoch: int
    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that has ended, with the contents of its receipt."""

    step: int
    is_done: bool
    blocks: int = 0
    bytes: int = 0
    note: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    generation: int
    hash: str
    is_believed: bool  # exactly this hash was desired at this generation


@dataclass(frozen=True, slots=True)
class Rejected:
    hash: str
    reason: str


@dataclass(frozen=True, slots=True)
class Known:
    """The stored facts about an agent when a batch arrives. The maps need only the entries that the batch mentions."""

    applied_generation: int = 0
    rejected_hash: str = ""
    desired_generation: int = 0
    generations: Mapping[int, str] = field(default_factory=dict)  # generation: the hash that was desired
    organisations: Mapping[int, int] = field(default_factory=dict)  # namespace: its organisation
    steps: Sequence[WaitingStep] = ()
    proofs: Sequence[Proof] = ()


@dataclass(slots=True)
class Facts:
    """The news in a batch, in the order reported. None and empty mean unchanged."""

    about: Mapping[str, Any] | None = None
    applied: Applied | None = None
    rejected: Rejected | None = None
    is_rejection_over: bool = False
    ended: list[Ended] = field(default_factory=list)
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)  # reason: count, and the last one's description
    proofs: tuple[Proof, ...] | None = None  # proofs that now wait for an acknowledgement; None if unchanged
    dropped: list[str] = field(default_factory=list)  # ignored reports, with the reason


@dataclass(frozen=True, slots=True)
class Intake:
    arrival: Arrival
    facts: Facts


def intake_plan(received: Received, known: Known, batch: Batch) -> Intake:
    """Return the changes that a batch makes. Store all of them in one transaction, or none."""
    arrival = arrival_of(received, batch)
    reducer = _Weighing(known)
    for report in arrival.fresh:
        reducer.weigh(report)
    return Intake(arrival, reducer.facts())


def is_absurd(generation: int, *, desired: int) -> bool:
    """Return whether a reported generation is impossibly high.

    The next generation must exceed every reported one, so reports need a limit.
    """
    return generation > desired + MOST_AHEAD


def steps_proved(
    steps: Iterable[WaitingStep], proofs: Iterable[Proof], *, generation: int
) -> tuple[list[Ended], list[Proof]]:
    """Return the steps that applying this generation completes, and the proofs that are left over."""
    due = [
        step for step in steps if step.deed == STATE and step.generation is not None and step.generation <= generation
    ]
    all_proofs = list(proofs)
    ended = [_ended(step, [proof for proof in all_proofs if _concerns(step, proof)]) for step in due]
    return ended, [proof for proof in all_proofs if not any(_concerns(step, proof) for step in due)]


def _ended(step: WaitingStep, proofs: Sequence[Proof]) -> Ended:
    return Ended(
        step.id, True, blocks=sum(proof.blocks for proof in proofs), bytes=sum(proof.bytes for proof in proofs)
    )


def _concerns(step: WaitingStep, proof: Proof) -> bool:
    if step.namespace is not None:
        return step.namespace == proof.namespace
    return step.organisation is None or step.organisation == proof.organisation


class _Weighing:
    """Processes the new reports of a batch in order, because a purge counts for the acknowledgement that follows it."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._facts = Facts()
        self._generation = known.applied_generation
        self._waiting = {step.id: step for step in known.steps}
        self._proofs = {proof.namespace: proof for proof in known.proofs}

    def facts(self) -> Facts:
        proofs = tuple(self._proofs.values())
        if set(proofs) != set(self._known.proofs):
            self._facts.proofs = proofs
        return self._facts

    def weigh(self, report: Report) -> None:
        content = report.told
        if report.kind == "applied":
            self._applied(content["generation"], content["hash"])
        elif report.kind == "purged":
            self._purged(content)
        elif report.kind == "receipt":
            self._receipt(content)
        elif report.kind == "rejected":
            reason = content.get("reason") or ""  # short texts may be missing
            self._facts.rejected, self._facts.is_rejection_over = Rejected(content["hash"], reason), False
        elif report.kind == "refused":
            count, _ = self._facts.refused.get(content["reason"], (0, ""))
            self._facts.refused[content["reason"]] = (min(count + content["count"], MOST), content.get("what") or "")
        elif report.kind == "about":
            self._about(content)
        # usage, levels and gaps are added up elsewhere, in the same transaction: recording.py

    def _about(self, content: Mapping[str, Any]) -> None:
        try:
            self._facts.about = about_read(content)
        except MalformedRequest as error:
            self._facts.dropped.append(f"about: {error}")

    def _applied(self, generation: int, hash_: str) -> None:
        if is_absurd(generation, desired=max(self._known.desired_generation, self._generation)):
            self._facts.dropped.append(f"applied: generation {generation} is beyond any that it can have been told")
            return
        if generation < self._generation:  # a spool repeated it late: the agent has applied a newer one since
            self._facts.dropped.append(f"applied: generation {generation} is older than {self._generation}")
            return
        is_new = generation > self._generation
        is_believed = self._known.generations.get(generation) == hash_
        self._generation = generation
        self._facts.applied = Applied(generation, hash_, is_believed)
        self._rejection_over(hash_)
        if is_believed:
            self._proved(generation, is_new=is_new)

    def _proved(self, generation: int, *, is_new: bool) -> None:
        ended, remaining = steps_proved(self._waiting.values(), self._proofs.values(), generation=generation)
        for ended_step in ended:
            del self._waiting[ended_step.step]
        self._facts.ended += ended
        # Proofs reported before a new state belong to that state, whichever operation they were for. If the agent only
        # repeats its state, as it does after a restart, proofs of the next state may be here already.
        self._proofs = {} if is_new else {proof.namespace: proof for proof in remaining}

    def _rejection_over(self, hash_: str) -> None:
        rejected = self._facts.rejected.hash if self._facts.rejected else self._known.rejected_hash
        if rejected == hash_:
            self._facts.rejected, self._facts.is_rejection_over = None, True

    def _purged(self, content: Mapping[str, Any]) -> None:
        namespace = int(content["namespace"]) if content["namespace"].isdecimal() else -1
        organisation = self._known.organisations.get(namespace)
        if organisation is None:
            self._facts.dropped.append("purged: there is no such namespace")
            return
        previous = self._proofs.get(namespace, Proof(namespace, organisation, 0, 0, 0))
        self._proofs[namespace] = Proof(
            namespace,
            organisation,
            epoch=max(previous.epoch, content["epoch"]),
            blocks=min(previous.blocks + content["blocks"], MOST),
            bytes=min(previous.bytes + content["bytes"], MOST),
        )

    def _receipt(self, content: Mapping[str, Any]) -> None:
        owed_steps = (
            step for step in self._waiting.values() if step.operation == content["operation"] and step.deed != STATE
        )
        step = next(owed_steps, None)
        if step is None:
            self._facts.dropped.append("receipt: no such operation waits for this agent")
            return
        del self._waiting[step.id]
        self._facts.ended.append(_receipt_of(step, content))


def _receipt_of(step: WaitingStep, content: Mapping[str, Any]) -> Ended:
    result = _result_kept(content["result"])
    blocks, bytes_ = (_count(result.get(name)) for name in ("blocks", "bytes"))
    note = result.get("why", "")
    note = note[:MOST_NOTE_CHARACTERS] if isinstance(note, str) else ""
    return Ended(step.id, content["ok"], blocks=blocks, bytes=bytes_, note=note, result=result)


def _result_kept(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a receipt's result if it can be stored and shown, otherwise a short replacement. Its form is free."""
    try:
        is_small = len(canonical_json(dict(result))) <= MOST_RESULT_BYTES
    except (ValueError, RecursionError):
        is_small = False
    if is_small:
        return result
    return {"why": f"the result is larger than {MOST_RESULT_BYTES} bytes, or no JSON"} | _problems_kept(result)


def _problems_kept(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problems that a check found. They are never dropped, because rollouts roll back because of them."""
    problems = result.get("problems")
    if not isinstance(problems, list):
        return {}
    texts = [
        problem[:PROBLEM_LENGTH] if isinstance(problem, str) else "(not a sentence)"
        for problem in problems[:PROBLEMS_KEPT]
    ]
    return {"problems": texts, "problem_count": max(len(problems), _count(result.get("problem_count")))}


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= MOST else 0
