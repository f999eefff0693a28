"""The journal record of one attempt at a request: the sum of the engine's admissions.

Headers, usage and metrics are derived from the same record.
"""

from collections import Counter
from collections.abc import Sequence

from engine_agent.contracts.identity import Identity
from engine_agent.engine.outputs import Admission
from engine_agent.journal.records import Opened

FULL_HIT = "none"


def opened_record(identity: Identity, admissions: Sequence[Admission], *, model: str, at: float) -> Opened:
    """Return the record. A batch of prompts sums; its reason is that of the first prompt with a miss."""
    missed: Counter[str] = Counter()
    for admission in admissions:
        missed.update(admission.missed)
    return Opened(
        request_id=identity.request_id,
        attempt=identity.attempt,
        kind=identity.kind,
        at=at,
        organisation_id=identity.organisation_id,
        organisation=identity.organisation,
        namespace_id=identity.namespace_id,
        namespace=identity.namespace,
        policy_revision=admissions[0].policy_revision,
        model=model,
        kv_dtype=admissions[0].kv_dtype,
        prompt_tokens=sum(admission.prompt_tokens for admission in admissions),
        cached_tokens=sum(admission.cached_tokens for admission in admissions),
        miss_reason=next(
            (admission.miss_reason for admission in admissions if admission.miss_reason != FULL_HIT), FULL_HIT
        ),
        missed={reason: tokens for reason, tokens in missed.items() if tokens},
        key_id=identity.key_id,
    )
