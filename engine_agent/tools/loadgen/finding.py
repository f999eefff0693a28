"""Find out by requests which model a server serves and which form of requests it accepts."""

import json
from dataclasses import replace

import aiohttp

from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.answer import shown
from engine_agent.tools.loadgen.asking import FAILURES, ask, failure, refusal
from engine_agent.tools.loadgen.server import Form, Server
from engine_agent.tools.loadgen.workloads import Asked, Vocabulary

CALIBRATION_TOKENS = 256
SECONDS = 30.0


async def find_server(opened: aiohttp.ClientSession, server: Server, *, wants: str, vocabulary: Vocabulary) -> Server:
    """Return the server with its model and a form it accepts. `wants` is auto, ids, text or chat.

    Raises ToolError.
    """
    if not server.model:
        server = replace(server, model=await _only_model(opened, server))
    refused = ""
    for form in _forms(wants):
        candidate = replace(server, form=form)
        outcome = await ask(opened, candidate, Asked(vocabulary.draw(CALIBRATION_TOKENS, "calibration"), 1))
        if outcome.is_answered:
            if form.takes_ids or not outcome.prompt_tokens:
                return candidate
            return replace(candidate, form=replace(form, tokens_per_word=outcome.prompt_tokens / CALIBRATION_TOKENS))
        refused = refused or told(outcome.error or "", outcome.detail)
    raise ToolError(server.path, refused)


def _forms(wants: str) -> list[Form]:
    """Return forms, most exact first: with token ids the lengths are exact, and without an end token they stay so."""
    ids = [Form(ignores_eos=ignores) for ignores in (True, False)]
    text = [replace(form, takes_ids=False) for form in ids]
    chat = [replace(form, is_chat=True) for form in text]
    return {"auto": [*ids, *text], "ids": ids, "text": text, "chat": chat}[wants]


async def _only_model(opened: aiohttp.ClientSession, server: Server) -> str:
    url = f"{server.url}/models"
    try:
        async with opened.get(
            url, headers=server.all_headers, timeout=aiohttp.ClientTimeout(total=SECONDS)
        ) as response:
            answer = await response.read()
            if response.status != 200:
                raise ToolError(url, told(*refusal(response.status, answer)))
        return str(json.loads(answer)["data"][0]["id"])
    except FAILURES as problem:
        raise ToolError(url, told(*failure(problem))) from problem


def told(kind: str, detail: str) -> str:
    return f"{kind}: {shown(detail)}" if detail else kind
