"""Admission under policies: the block manager over vLLM's blocks, the tenants, and the waiting room.

Does not import vLLM. Namespaces come by snapshot: a fleet's, or one made from names and policies (`named.py`).
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine_agent.backends.vllm.asked import FIELD, Asked
from engine_agent.backends.vllm.flat_pages import FlatPages
from engine_agent.cache.books import CacheLimits
from engine_agent.cache.manager import Admitted, BlockManager
from engine_agent.cache.sequences import Sequence as BlockSequence
from engine_agent.cache.waiting import WaitingRoom
from engine_agent.engine.admissions import as_told, missed_tokens
from engine_agent.engine.errors import UnknownTenant
from engine_agent.engine.notices import Notices
from engine_agent.engine.outputs import Admission
from engine_agent.engine.tenants import Tenants

PRIVATE_SECONDS = 1.0  # how long blocks that nothing may match are cached
SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Setup:
    """The scheduler's settings in vLLM's `additional_config`: plain types only."""

    model: str = "model"
    revision: str = ""
    kv_formats: tuple[str, ...] = ("bf16",)  # the computed format, and its aliases
    boot: str = field(default_factory=lambda: secrets.token_hex(8))
    most_waiting: int = 1_000
    is_stock: bool = False  # True with vLLM's own server, which clients reach: requests then need a front's secret

    def packed(self) -> dict[str, Any]:
        return {FIELD: asdict(self)}

    @classmethod
    def unpacked(cls, config: object, default: "Setup") -> "Setup":
        setup_fields = config.get(FIELD) if isinstance(config, Mapping) else None
        if not isinstance(setup_fields, Mapping):
            return default
        return replace(
            default, **{**setup_fields, "kv_formats": tuple(setup_fields.get("kv_formats", default.kv_formats))}
        )


class Governor:
    def __init__(
        self, pages: FlatPages, setup: Setup, *, block_tokens: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.setup = setup
        self.pages = pages
        # Only purged pages are zeroed. Expired ones are overwritten by their next owner before anything reads them.
        limits = CacheLimits(tables_are_fixed=True, zero_expired=False)
        self.manager = BlockManager(pages, clock=clock, block_tokens=block_tokens, limits=limits, boot=setup.boot)
        self.tenants = Tenants(self.manager, model=setup.model, kv_formats=setup.kv_formats, takes_unserved=True)
        self.room = WaitingRoom(self.manager, most=setup.most_waiting)
        self.notices = Notices()
        self._fronts: set[str] = set()

    def adopt(self, secret: str) -> None:
        """Accept the secret of our middleware in a server process; each process has its own."""
        self._fronts.add(secret)

    def asked(self, extra_args: Mapping[str, Any] | None) -> Asked:
        """Return our fields of a request. Raises UnknownTenant."""
        is_believed = not self.setup.is_stock or self._is_of_front(extra_args)
        fields = Asked.unpacked(extra_args) if is_believed else None
        if fields is None:
            raise UnknownTenant("", "a request that says not whose it is")
        return fields

    def _is_of_front(self, extra_args: Mapping[str, Any] | None) -> bool:
        """Return whether the request has a front's secret. Checked before its other fields, which clients can set."""
        request_fields = (extra_args or {}).get(FIELD)
        front = request_fields.get("front") if isinstance(request_fields, Mapping) else None
        return isinstance(front, str) and front in self._fronts

    def sequence(
        self, fields: Asked, tokens: Sequence[int], *, apart: str = "", is_private: bool = False
    ) -> BlockSequence:
        """Return the block manager's sequence of a request. Raises UnknownTenant, BadRequest, CacheError.

        `apart`: further inputs of K and V, such as an adapter. `is_private`: it shares no blocks with other requests.
        """
        tenant = self.tenants.tenant(fields.namespace)
        salt = secrets.token_bytes(SALT_BYTES) if is_private else bytes.fromhex(fields.salt) + apart.encode()
        return self.manager.sequence(
            fields.namespace,
            tokens,
            kv_format=tenant.kv_format(fields.kv_format, self.setup.kv_formats),
            model_revision=self.setup.revision,
            salt=salt,
            ttl_seconds=PRIVATE_SECONDS if is_private else fields.ttl_seconds,
        )

    def admission(self, fields: Asked, sequence: BlockSequence, answer: Admitted) -> Admission:
        """Return the admission for the headers, with the computed format, whatever alias the request used."""
        answer = as_told(answer, fields.elsewhere_tokens, self.manager.cache.block_tokens)
        tenant = self.tenants.known(fields.namespace)
        return Admission(
            prompt_tokens=len(sequence.tokens),
            cached_tokens=answer.cached_tokens,
            kv_dtype=self.setup.kv_formats[0],
            policy_revision=tenant.revision if tenant else 0,
            miss_reason=answer.miss_reason,
            missed=missed_tokens(sequence, answer),
            organisation_id=tenant.organisation_id if tenant else "",
        )
