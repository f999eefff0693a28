"""Parameters of the OpenAI API that this server refuses by name, because it cannot honour them.

Each is still accepted with a value without effect. Parameters neither here nor in `schemas.py` are refused as unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_agent.http.errors import ApiError


@dataclass(frozen=True, slots=True)
class Unsupported:
    why: str
    harmless: tuple[Any, ...] = ()


_TOOLS = "this server calls no tools"
_TEXT = "this server answers in free text"
_REASONING = "the models here have no reasoning that could be set"
_COMMON: Mapping[str, Unsupported] = {
    "tools": Unsupported(_TOOLS, ([],)),
    "tool_choice": Unsupported(_TOOLS, ("none",)),
    "functions": Unsupported(_TOOLS, ([],)),
    "function_call": Unsupported(_TOOLS, ("none",)),
    "response_format": Unsupported(_TEXT, ({"type": "text"},)),
    "structured_outputs": Unsupported(_TEXT),
    "guided_json": Unsupported(_TEXT),
    "guided_regex": Unsupported(_TEXT),
    "guided_choice": Unsupported(_TEXT),
    "guided_grammar": Unsupported(_TEXT),
    "store": Unsupported("this server keeps no answers", (False,)),
    "service_tier": Unsupported("there is one tier here", ("auto", "default")),
    "prompt_cache_retention": Unsupported("how long a prompt is kept is the namespace's policy: see ttl_seconds"),
    "prompt_logprobs": Unsupported("log probabilities are of the answer alone"),
    "truncate_prompt_tokens": Unsupported("a prompt is served whole or not at all"),
    "allowed_token_ids": Unsupported("logit_bias can do the like"),
    "bad_words": Unsupported("logit_bias can do the like"),
}
CHAT: Mapping[str, Unsupported] = {
    **_COMMON,
    "audio": Unsupported(_TEXT),
    "modalities": Unsupported(_TEXT, (["text"],)),
    "prediction": Unsupported("nothing here is sped up by a prediction, and it would be billed"),
    "reasoning_effort": Unsupported(_REASONING, ("none",)),
    "verbosity": Unsupported(_REASONING, ("medium",)),
    "web_search_options": Unsupported("this server searches nothing"),
    "moderation": Unsupported("this server moderates nothing"),
    "chat_template": Unsupported("the template is the model's own"),
    "documents": Unsupported("put them into a message"),
    "echo": Unsupported("a chat's prompt is a template's: see return_token_ids"),
    "best_of": Unsupported("see n"),
}
COMPLETIONS: Mapping[str, Unsupported] = {
    **_COMMON,
    "suffix": Unsupported("the models here only go on", ("",)),
}


def refuse_unsupported(body: Mapping[str, Any], table: Mapping[str, Unsupported]) -> dict[str, Any]:
    """Return the remaining parameters; null equals absent. Raise ApiError for an unsupported one."""
    parameters = {name: value for name, value in body.items() if value is not None}
    for name in parameters.keys() & table.keys():
        if not any(_is_same(parameters[name], harmless) for harmless in table[name].harmless):
            raise ApiError(
                400, f"{name} is not supported: {table[name].why}.", param=name, code="unsupported_parameter"
            )
        del parameters[name]
    return parameters


def _is_same(value: Any, harmless: Any) -> bool:
    return type(value) is type(harmless) and bool(value == harmless)  # 0 is not false
