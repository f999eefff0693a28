"""Turn proofs of purges into reports: one for each namespace and epoch, when all its blocks are gone."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from engine_agent.contracts.wire import Report
from engine_agent.sidecar.holder import Proof

_PURGE = attrgetter("namespace", "epoch")


def are_complete(proofs: Sequence[Proof]) -> bool:
    """Return whether each started purge is complete. One that waits for sequences gets a final proof with all of it."""
    return all(len(final) >= len(begun) for final, begun in map(_parted, _by_purge(proofs)))


def proof_reports(proofs: Sequence[Proof]) -> Iterator[Report]:
    for purge in _by_purge(proofs):
        final, begun = _parted(purge)
        unfinished = begun[len(final) :] if len(begun) > len(final) else []
        counted_proofs = [*final, *unfinished]
        last = purge[-1]
        yield Report(
            "purged",
            {
                "namespace": last.namespace,
                "epoch": last.epoch,
                "blocks": sum(proof.blocks for proof in counted_proofs),
                "bytes": sum(proof.bytes for proof in counted_proofs),
                "at": last.at,
                "engine_boot": last.boot,
            },
        )


def _by_purge(proofs: Sequence[Proof]) -> Iterator[list[Proof]]:
    for _, purge in groupby(sorted(proofs, key=_PURGE), key=_PURGE):
        yield list(purge)


def _parted(purge: Sequence[Proof]) -> tuple[list[Proof], list[Proof]]:
    """Return the final proofs and the preliminary ones."""
    return [proof for proof in purge if proof.is_final], [proof for proof in purge if not proof.is_final]
