"""One round of probes at one engine, sent like customers' requests, for two tenants that belong to no customer."""

import asyncio
import json
import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

import aiohttp

from engine_agent.contracts.identity import HEADER, INFER, LIFETIME_SECONDS, Identity, sign
from engine_agent.contracts.protocol import CANARIES
from engine_agent.gateway.canary.judging import LEAST_TOKENS, Round, Seen, Verdict, judge
from engine_agent.gateway.tables import Engine, Namespace, Organisation, Tables
from engine_agent.http.headers import REQUEST_ID

ANSWER_SECONDS = 30.0
WANTED_TOKENS = LEAST_TOKENS + 64
FIRST_CHARACTERS, LEAST_CHARACTERS, MOST_CHARACTERS = 600, 64, 8_192
_LETTERS = "abcdefghijklmnopqrstuvwxyz "


class ProbeFailed(Exception):
    """The engine did not answer, or its answer cannot be judged."""


@dataclass(frozen=True, slots=True)
class Tenant:
    organisation: Organisation
    namespace: Namespace


def canary_tenants(tables: Tables) -> tuple[Tenant, Tenant] | None:
    """Return the two canary tenants, or None if the snapshot has none; then no gateway probes."""
    organisations = [tables.organisations.get(name) for name in CANARIES]
    tenants = [
        Tenant(organisation, next(iter(organisation.namespaces.values())))
        for organisation in organisations
        if organisation and organisation.namespaces
    ]
    return (tenants[0], tenants[1]) if len(tenants) == len(CANARIES) else None


class Prober:
    """Sends probes. `now` returns unix seconds by the control plane's clock, by which engines check identities."""

    def __init__(self, session: aiohttp.ClientSession, now: Callable[[], float]) -> None:
        self._session, self._now = session, now
        self._characters: dict[str, int] = {}  # the length of a prompt, by model

    async def round(self, engine: Engine, tenants: tuple[Tenant, Tenant]) -> Verdict:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return judge(await self.seen(engine, tenants))
        except ProbeFailed as problem:
            return Verdict("failed", str(problem))
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return Verdict("failed", str(problem) or type(problem).__name__)

    async def seen(self, engine: Engine, tenants: tuple[Tenant, Tenant]) -> Round:
        """Return the four answers of a round. Raise ProbeFailed, or the connection's exceptions."""
        model, (first_tenant, second_tenant) = next(iter(engine.models)), tenants
        shared, own = self._prompt(model), self._prompt(model)
        fresh = await self._ask(engine, model, first_tenant, shared)
        again = await self._ask(engine, model, first_tenant, shared)
        # In random order, so that being first or second makes no difference between the two.
        prompts = random.sample([shared, own], 2)
        seen = {prompt: await self._ask(engine, model, second_tenant, prompt) for prompt in prompts}
        self._learn(model, shared, fresh)
        return Round(fresh, again, seen[shared], seen[own])

    def _prompt(self, model: str) -> str:
        length = self._characters.get(model, FIRST_CHARACTERS)
        return "".join(secrets.choice(_LETTERS) for _ in range(length))

    def _learn(self, model: str, prompt: str, answer: Seen) -> None:
        """Adjust the prompts' length to the model: tokenizers differ in how many characters make a token."""
        characters = len(prompt) * WANTED_TOKENS // max(1, answer.prompt_tokens)
        self._characters[model] = min(MOST_CHARACTERS, max(LEAST_CHARACTERS, characters))

    async def _ask(self, engine: Engine, model: str, tenant: Tenant, prompt: str) -> Seen:
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}).encode()
        identity = self._identity(engine, tenant)
        headers = {
            "content-type": "application/json",
            HEADER: sign(identity, engine.secret),
            REQUEST_ID: identity.request_id,
        }
        began = time.perf_counter()
        async with self._session.post(
            f"{engine.address}/v1/completions", data=body, headers=headers, allow_redirects=False
        ) as answer:
            answer_body = await answer.content.read(MOST_CHARACTERS)
            milliseconds = (time.perf_counter() - began) * 1000
            if answer.status != 200:
                raise ProbeFailed(
                    f"it answered a probe with {answer.status}: {answer_body[:160].decode(errors='replace')}"
                )
            return _seen(answer.headers, milliseconds)

    def _identity(self, engine: Engine, tenant: Tenant) -> Identity:
        now = self._now()
        return Identity(
            organisation_id=tenant.organisation.id,
            organisation=tenant.organisation.slug,
            namespace_id=tenant.namespace.id,
            namespace=tenant.namespace.slug,
            scope=INFER,
            policy_revision=tenant.namespace.revision,
            request_id=f"canary-{uuid4().hex}",
            attempt=1,
            kind="probe",
            deadline=now + ANSWER_SECONDS,
            issued_at=now,
            expires_at=now + LIFETIME_SECONDS,
            audience=engine.agent,
        )


def _seen(headers: Mapping[str, str], milliseconds: float) -> Seen:
    counts = [headers.get(f"x-luminet-{name}-tokens", "") for name in ("prompt", "cached")]
    if not all(count.isascii() and count.isdecimal() for count in counts):
        raise ProbeFailed("it answered a probe without saying how many tokens were cached")
    return Seen(int(counts[0]), int(counts[1]), milliseconds)
