"""The greeting of a started engine: that it is ready, its address, and commands to paste."""

import json
import shlex
from dataclasses import dataclass

from engine_agent.backends.base import ModelCard
from engine_agent.backends.engine_config import EngineConfig
from engine_agent.engine.settings import EngineSettings

QUESTION = "What does the module json do?"
ANSWER_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Ready:
    config: EngineConfig
    settings: EngineSettings  # with all defaults filled in
    card: ModelCard
    seconds: float
    admin: str
    api_key: str | None  # None: in a fleet, gateways identify callers
    kernels: str


def welcome(ready: Ready) -> str:
    lines = [_what(ready), f"Admin face: {ready.admin}"]
    if ready.api_key is None:
        return "\n".join([*lines, f"It serves gateways that know its identity secret, as {ready.config.agent_id}."])
    return "\n".join([*lines, f"API key: {ready.api_key}  ({ready.config.state / 'api-key'})", "", *_to_paste(ready)])


def welcome_line(ready: Ready) -> str:
    """Return a JSON line for programs, without secrets, because logs are stored and read by others."""
    config = ready.config
    line = {
        "event": _what(ready),
        "model": ready.card.name,
        "url": f"{config.url}/v1",
        "admin": ready.admin,
        "agent_id": config.agent_id,
        "api_key_file": None if ready.api_key is None else str(config.state / "api-key"),
    }
    return json.dumps(line)


def _what(ready: Ready) -> str:
    card, settings = ready.card, ready.settings
    threads = f"{settings.threads} thread{'s' * (settings.threads > 1)}"
    return (
        f"{card.name} is served at {ready.config.url}/v1, {ready.seconds:.1f} s after the start: {card.device}, "
        f"{card.dtype}, {threads}, {ready.kernels}, {card.context_tokens:,} tokens of context, "
        f"{card.pool_bytes / 2**20:,.0f} MiB for keys and values."
    )


def _to_paste(ready: Ready) -> list[str]:
    url, key = f"{ready.config.url}/v1", ready.api_key
    body = json.dumps(
        {"model": ready.card.name, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": ANSWER_TOKENS}
    )
    return [
        f"curl -i {url}/chat/completions \\",
        f"  -H 'authorization: Bearer {key}' -H 'content-type: application/json' \\",
        f"  -d {shlex.quote(body)}",
        "",
        "from openai import OpenAI",
        f"client = OpenAI(base_url={url!r}, api_key={key!r})",
        f"answer = client.chat.completions.create(model={ready.card.name!r}, "
        f"max_tokens={ANSWER_TOKENS}, messages=[{{'role': 'user', 'content': {QUESTION!r}}}])",
        "print(answer.choices[0].message.content)",
        "",
        "Ctrl-C stops it when what runs is answered; twice, at once.",
    ]
