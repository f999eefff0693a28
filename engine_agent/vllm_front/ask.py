"""One running HTTP request: its caller, and what the engine has reported of its prompts."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from engine_agent.engine.outputs import Admission
from engine_agent.http.errors import ApiError
from engine_agent.http.headers import COUNTED
from engine_agent.server.headers import percent
from engine_agent.server.records import FULL_HIT
from engine_agent.vllm_front.whose import Caller


@dataclass(eq=False)
class Ask:
    caller: Caller
    prompts: int = 0  # prompts that are or will be sent to the engine for it
    settled: int = 0  # admitted, refused, or never sent
    admissions: list[Admission] = field(default_factory=list)
    refusal: ApiError | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)  # the hits of all prompts are known
    _seen: set[str] = field(default_factory=set)

    def expect(self) -> None:
        self.prompts += 1
        self.told.clear()

    def is_first(self, prompt_id: str) -> bool:
        """Return whether the prompt is new: further choices of a prompt are its siblings, and do not count again."""
        is_first = prompt_id not in self._seen
        self._seen.add(prompt_id)
        return is_first

    def settle(self, outcome: Admission | ApiError | None = None) -> None:
        if isinstance(outcome, Admission):
            self.admissions.append(outcome)
        elif outcome is not None:
            self.refusal = self.refusal or outcome
        self.settled += 1
        if self.settled >= self.prompts or self.refusal:
            self.told.set()


CURRENT: ContextVar[Ask | None] = ContextVar("luminet_ask", default=None)


def cache_headers(ask: Ask, agent_id: str) -> Sequence[tuple[str, str]]:
    """Return headers with the hits of all prompts; none if no prompt was admitted."""
    if not ask.admissions:
        return ()
    first = ask.admissions[0]
    prompt_tokens = sum(admission.prompt_tokens for admission in ask.admissions)
    cached_tokens = sum(admission.cached_tokens for admission in ask.admissions)
    values = (
        percent(cached_tokens, prompt_tokens),
        str(cached_tokens),
        str(prompt_tokens),
        first.kv_dtype,
        ask.caller.slug,
        str(first.policy_revision),
        next((admission.miss_reason for admission in ask.admissions if admission.miss_reason != FULL_HIT), FULL_HIT),
        agent_id,
    )
    return tuple(zip(COUNTED, values, strict=True))
