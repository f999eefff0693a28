"""Look up the agents of tokens that the roster does not know, many tokens in one query.

After a restart the whole fleet connects within seconds, and no agent is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from django.utils import timezone

from controlplane.fleet.enrolment import AGENT_TOKEN_KIND, agent_for_token
from controlplane.fleet.errors import Revoked, UnknownToken
from controlplane.fleet.known_agents import AgentNow, TokenOwner, token_owners
from tenants.crypto import secret_hash, secret_is_well_formed

Asked = Mapping[bytes, str]  # hash: token
Outcome = AgentNow | Exception
InDatabase = Callable[[Asked], Awaitable[dict[bytes, Outcome]]]


class Recognition:
    """Collects token lookups into batches, for one event loop. `ask` calls `recognised` in a thread."""

    def __init__(self, ask: InDatabase) -> None:
        self._ask = ask
        self._waiting: dict[bytes, tuple[str, asyncio.Future[AgentNow]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def agent(self, token: str) -> AgentNow:
        """Return the agent that the token belongs to. Raise UnknownToken, Revoked, or the error of the lookup."""
        if not secret_is_well_formed(AGENT_TOKEN_KIND, token):
            raise UnknownToken
        hash_ = secret_hash(token)
        if hash_ not in self._waiting:
            self._waiting[hash_] = (token, asyncio.get_running_loop().create_future())
        _, future = self._waiting[hash_]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await asyncio.shield(future)  # other requests may wait for the same lookup

    async def _ask_all(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            outcomes = await self._outcomes({hash_: token for hash_, (token, _) in waiting.items()})
            for hash_, (_, future) in waiting.items():
                outcome = outcomes[hash_]
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                    future.exception()  # mark it as retrieved: every waiting request may be gone
                else:
                    future.set_result(outcome)

    async def _outcomes(self, tokens: Asked) -> dict[bytes, Outcome]:
        try:
            return await self._ask(tokens)
        except Exception as error:
            return dict.fromkeys(tokens, error)


def recognised(tokens: Asked) -> dict[bytes, Outcome]:
    """Return for each token its agent, or the error if it has no agent."""
    owners = token_owners(tokens)
    return {hash_: _outcome(token, owners.get(hash_)) for hash_, token in tokens.items()}


def _outcome(token: str, owner: TokenOwner | None) -> Outcome:
    if owner is None:
        return UnknownToken()
    if owner.agent.is_revoked:
        return Revoked(owner.agent.id)
    return _first_used(token) if owner.is_next else owner.agent


def _first_used(token: str) -> Outcome:
    """End the old token, because the new one is now in use, and return the agent or an error."""
    try:
        agent_for_token(token, timezone.now())
    except (UnknownToken, Revoked) as error:
        return error
    owner = token_owners([secret_hash(token)]).get(secret_hash(token))
    return UnknownToken() if owner is None or owner.is_next else owner.agent
