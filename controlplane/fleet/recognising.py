"""Whose token it is, for tokens that the door does not know: asked of the database for many at once.

After a restart the whole fleet comes within seconds, and nobody of it is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from django.utils import timezone

from controlplane.fleet.enrolment import AGENT_TOKEN_KIND, agent_for_token
from controlplane.fleet.errors import Revoked, UnknownToken
from controlplane.fleet.known_agents import AgentNow, TokenOwner, token_owners
from tenants.crypto import secret_hash, secret_is_well_formed

Asked = Mapping[bytes, str]  # tokens by what they hash to
Outcome = AgentNow | Exception
InDatabase = Callable[[Asked], Awaitable[dict[bytes, Outcome]]]


class Recognition:
    """For one event loop. `ask` is `recognised`, wherever that has to run."""

    def __init__(self, ask: InDatabase) -> None:
        self._ask = ask
        self._waiting: dict[bytes, tuple[str, asyncio.Future[AgentNow]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def agent(self, token: str) -> AgentNow:
        """Raises UnknownToken or Revoked, or what went wrong."""
        if not secret_is_well_formed(AGENT_TOKEN_KIND, token):
            raise UnknownToken
        hash_ = secret_hash(token)
        if hash_ not in self._waiting:
            self._waiting[hash_] = (token, asyncio.get_running_loop().create_future())
        _, future = self._waiting[hash_]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await asyncio.shield(future)  # others may wait for the same one

    async def _ask_all(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            outcomes = await self._outcomes({hash_: token for hash_, (token, _) in waiting.items()})
            for hash_, (_, future) in waiting.items():
                outcome = outcomes[hash_]
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                    future.exception()  # nobody may be there any more to hear it
                else:
                    future.set_result(outcome)

    async def _outcomes(self, asked: Asked) -> dict[bytes, Outcome]:
        try:
            return await self._ask(asked)
        except Exception as error:
            return dict.fromkeys(asked, error)


def recognised(asked: Asked) -> dict[bytes, Outcome]:
    """Each with its agent, or with why there is none for it."""
    owners = token_owners(asked)
    return {hash_: _outcome(token, owners.get(hash_)) for hash_, token in asked.items()}


def _outcome(token: str, owner: TokenOwner | None) -> Outcome:
    if owner is None:
        return UnknownToken()
    if owner.agent.is_revoked:
        return Revoked(owner.agent.id)
    return _first_used(token) if owner.is_next else owner.agent


def _first_used(token: str) -> Outcome:
    """A new token ends the old one when it is first used."""
    try:
        agent_for_token(token, timezone.now())
    except (UnknownToken, Revoked) as error:
        return error
    owner = token_owners([secret_hash(token)]).get(secret_hash(token))
    return UnknownToken() if owner is None or owner.is_next else owner.agent
