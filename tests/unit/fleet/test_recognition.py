"""Tokens that nobody knows yet are asked for together, and each gets its own answer."""

import asyncio

import pytest

from controlplane.fleet.enrolment import AGENT_TOKEN_KIND
from controlplane.fleet.errors import Revoked, UnknownToken
from controlplane.fleet.known_agents import AgentNow
from controlplane.fleet.recognising import Asked, Outcome, Recognition
from tenants.crypto import secret_hash, secret_new

TOKENS = [secret_new(AGENT_TOKEN_KIND).secret for _ in range(20)]


class Register:
    """Knows all but the last two tokens."""

    def __init__(self) -> None:
        self.questions: list[int] = []
        self.is_away = False

    async def ask(self, asked: Asked) -> dict[bytes, Outcome]:
        self.questions.append(len(asked))
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionError("away")
        return {hash_: self._outcome(token) for hash_, token in asked.items()}

    def _outcome(self, token: str) -> Outcome:
        if token == TOKENS[-1]:
            return UnknownToken()
        if token == TOKENS[-2]:
            return Revoked("agent-18")
        return AgentNow(f"agent-{TOKENS.index(token)}", "engine", 1, secret_hash(token), False, "", 0, "", 0)


async def test_many_that_come_at_once_are_one_question_and_each_gets_its_own_answer() -> None:
    register = Register()
    recognition = Recognition(register.ask)
    outcomes = await asyncio.gather(*map(recognition.agent, [*TOKENS, *TOKENS]), return_exceptions=True)
    assert register.questions == [20]
    ids = [one.id if isinstance(one, AgentNow) else type(one).__name__ for one in outcomes]
    assert ids == [*(f"agent-{number}" for number in range(18)), "Revoked", "UnknownToken"] * 2


async def test_what_is_no_token_is_not_asked_for() -> None:
    register = Register()
    recognition = Recognition(register.ask)
    for token in ("", "lat_", TOKENS[0][:-1] + "!", "ljt" + TOKENS[0][3:], TOKENS[0] + "x"):
        with pytest.raises(UnknownToken):
            await recognition.agent(token)
    assert register.questions == []


async def test_with_the_database_away_everybody_is_told_and_may_ask_again() -> None:
    register = Register()
    recognition = Recognition(register.ask)
    register.is_away = True
    outcomes = await asyncio.gather(*map(recognition.agent, TOKENS), return_exceptions=True)
    assert {type(one) for one in outcomes} == {ConnectionError}
    register.is_away = False
    assert (await recognition.agent(TOKENS[3])).id == "agent-3"


async def test_who_leaves_while_waiting_takes_nobodys_answer_along() -> None:
    register = Register()
    recognition = Recognition(register.ask)
    leaving = asyncio.create_task(recognition.agent(TOKENS[3]))
    staying = asyncio.create_task(recognition.agent(TOKENS[3]))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).id == "agent-3"
