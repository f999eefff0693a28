"""Schemas of requests: OpenAI's fields that have an effect here, vLLM's, and ours. Only shapes and types.

`SamplingParams` checks bounds of numbers, the engine what its model can do. Unknown fields are refused: an answer that
silently differs from the request is worse than none.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from engine_agent.engine.errors import BadRequest
from engine_agent.engine.params import BeamParams, SamplingParams, shown
from engine_agent.http.errors import ApiError, invalid
from engine_agent.http.strict_json import is_nested_deeper
from engine_agent.server.errors import api_error
from engine_agent.server.unsupported import CHAT, COMPLETIONS, Unsupported, refuse_unsupported

MOST_PROMPTS = 128
MOST_CHOICES = 256  # over all prompts
MOST_BIASES = 1_024
LONGEST_SALT = 256  # bytes
MOST_DEPTH = 16  # for objects that a client defines
LONGEST_TTL_SECONDS = 604_800
COMPLETION_TOKENS = 16  # OpenAI's default for completions
_THE_TEMPLATES_OWN = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
)

Prompt = str | list[int]


def _wrong(problem: str, kind: str = "invalid") -> PydanticCustomError:
    return PydanticCustomError(kind, "{problem}", {"problem": problem})


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """Return one or several prompts, each a text or token ids."""
    if isinstance(value, str) or _are_tokens(value):
        return (value,)
    if not isinstance(value, list) or not value:
        raise _wrong("must be a text, a list of texts, a list of token ids, or a list of lists of token ids")
    if len(value) > MOST_PROMPTS:
        raise _wrong(f"{len(value)} prompts are more than {MOST_PROMPTS}")
    for index, prompt in enumerate(value):
        if not isinstance(prompt, str) and not _are_tokens(prompt):
            raise _wrong(f"element {index} is neither a text nor a list of token ids")
    if len({type(prompt) for prompt in value}) > 1:
        raise _wrong("some are texts and others are token ids")
    return tuple(value)


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _wrong("must be a text or a list of texts")
    return tuple(stops)


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, dict) or len(value) > MOST_BIASES:
        raise _wrong(f"must be an object of at most {MOST_BIASES:,} token ids and their biases")
    for token, bias in value.items():
        if not token.isascii() or not token.isdecimal() or len(token) > 9 or str(int(token)) != token:
            raise _wrong(f"{token[:40]!a} is no token id")
        if type(bias) not in (int, float):
            raise _wrong(f"the bias of token {token} is no number")
    return {int(token): bias for token, bias in value.items()}


def _content(value: Any) -> str | list[dict[str, str]]:
    """Return text, or text parts, which the template combines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise _wrong("must be a text or a list of text parts")
    return [_part(index, part) for index, part in enumerate(value)]


def _part(index: int, part: Any) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise _wrong(f"part {index} is no text, and the models here read nothing else", "unsupported")
    if part.keys() != {"type", "text"} or not isinstance(part["text"], str):
        raise _wrong(f"part {index} must have a type and a text, and nothing else")
    return dict(part)


def _salt(value: str) -> str:
    if not 1 <= len(value.encode()) <= LONGEST_SALT:
        raise _wrong(f"must be of 1 to {LONGEST_SALT} bytes")
    return value


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if is_nested_deeper(value, MOST_DEPTH):
        raise _wrong(f"is nested more than {MOST_DEPTH} levels deep")
    return value


def _template_values(value: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(_THE_TEMPLATES_OWN & value.keys()):
        raise _wrong(f"{name} is given to the template by the server")
    return _shallow(value)


def _without_nulls(value: Any) -> Any:
    """Drop empty fields, because clients return messages as they received them, including fields without a value."""
    is_object = isinstance(value, dict)
    return {key: field for key, field in value.items() if field is not None and field != []} if is_object else value


class _Object(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _one_stranger(cls, value: Any) -> Any:
        """Keep only one unknown field, so that a request with thousands does not cause an error for each."""
        if not isinstance(value, dict) or len(unknown_fields := value.keys() - cls.model_fields.keys()) <= 1:
            return value
        for name in unknown_fields - {min(unknown_fields)}:
            del value[name]
        return value


class Message(_Object):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | list[dict[str, str]], PlainValidator(_content)]
    name: str | None = None
    tool_call_id: str | None = None


class StreamOptions(_Object):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Asking(_Object):
    """The fields of both APIs."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Annotated[dict[int, float], PlainValidator(_biases)] = Field(default_factory=dict)
    seed: int | None = None
    stop: Annotated[tuple[str, ...], PlainValidator(_stops)] = ()

    # vLLM's
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], FailFast()] = Field(
        default_factory=list, max_length=MOST_BIASES
    )
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    use_beam_search: bool = False
    length_penalty: float | None = None
    early_stopping: bool | None = None
    add_special_tokens: bool | None = None
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    return_token_ids: bool = False

    # Ours
    kv_cache_dtype: str | None = None
    cache_salt: Annotated[str, AfterValidator(_salt)] | None = None
    ttl_seconds: float | None = Field(default=None, ge=1, le=LONGEST_TTL_SECONDS)

    # Without effect on the answer. `prompt_cache_key` is a hint for a choice between engines. As a part of the salt, it
    # would cost the hits it is meant to bring.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_shallow)] | None = None

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def is_usage_continuous(self) -> bool:
        return self.includes_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def salt(self) -> bytes:
        return (self.cache_salt or "").encode()

    def _sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            n=self.n,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=0 if self.top_k == -1 else self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=self.logit_bias,
            seed=self.seed,
            stop=self.stop,
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            include_stop=self.include_stop_str_in_output,
            skip_special_tokens=self.skip_special_tokens,
            logprobs=logprobs,
            beam=self._beam(),
        )

    def _beam(self) -> BeamParams | None:
        if self.use_beam_search:
            penalty = 1.0 if self.length_penalty is None else self.length_penalty
            return BeamParams(penalty, bool(self.early_stopping))
        for name in ("length_penalty", "early_stopping"):
            if getattr(self, name) is not None:
                raise BadRequest(name, "means something with use_beam_search only")
        return None


class ChatRequest(Asking):
    messages: Annotated[list[Annotated[Message, BeforeValidator(_without_nulls)]], FailFast()] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None  # no effect without tools
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(_template_values)] = Field(default_factory=dict)

    @property
    def begins_an_answer(self) -> bool:
        explicit = self.add_generation_prompt
        return explicit if explicit is not None else not self.continue_final_message

    @property
    def sampling(self) -> SamplingParams:
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            conflict = f"is {shown(self.max_completion_tokens)}, max_tokens {shown(self.max_tokens)}"
            raise BadRequest("max_completion_tokens", conflict)
        if self.top_logprobs is not None and not self.logprobs:
            raise BadRequest("top_logprobs", "needs logprobs to be true")
        max_tokens = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return self._sampling(max_tokens=max_tokens, logprobs=(self.top_logprobs or 0) if self.logprobs else None)

    def check(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            raise BadRequest("continue_final_message", "cannot be true together with add_generation_prompt")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise BadRequest("continue_final_message", "needs the last message to be the assistant's")


class CompletionRequest(Asking):
    prompt: Annotated[tuple[Prompt, ...], PlainValidator(_prompts)]
    max_tokens: int = COMPLETION_TOKENS
    logprobs: int | None = None
    echo: bool = False
    best_of: int | None = None

    @property
    def sampling(self) -> SamplingParams:
        return self._sampling(max_tokens=self.max_tokens, logprobs=self.logprobs)

    def check(self) -> None:
        if (choices := len(self.prompt) * self.n) > MOST_CHOICES:
            raise BadRequest("n", f"{choices} answers to all prompts are more than {MOST_CHOICES}")
        if self.best_of not in (None, self.n):
            raise BadRequest("best_of", f"must be n, {self.n}, if anything: every answer made here is given")
        if self.echo and self.logprobs is not None:
            raise BadRequest("logprobs", "cannot go together with echo: log probabilities are of the answer alone")


_Asked = TypeVar("_Asked", ChatRequest, CompletionRequest)
_CHAT_NAMES: Mapping[str, str] = {
    "logprobs": "top_logprobs",
    "prompt": "messages",
    "include_stop": "include_stop_str_in_output",
}
_NEW_NAME = {"max_tokens": "max_completion_tokens"}
_COMPLETION_NAMES: Mapping[str, str] = {"include_stop": "include_stop_str_in_output"}


def names_of(request: Asking) -> Mapping[str, str]:
    """Return the client's names of the engine's fields."""
    if not isinstance(request, ChatRequest):
        return _COMPLETION_NAMES
    return {**_CHAT_NAMES, **(_NEW_NAME if request.max_completion_tokens is not None else {})}


def read_chat(body: Mapping[str, Any]) -> ChatRequest:
    return _read(ChatRequest, body, CHAT)


def read_completion(body: Mapping[str, Any]) -> CompletionRequest:
    return _read(CompletionRequest, body, COMPLETIONS)


def _read(kind: type[_Asked], body: Mapping[str, Any], table: Mapping[str, Unsupported]) -> _Asked:
    try:
        request = kind.model_validate(refuse_unsupported(body, table))
    except ValidationError as problem:
        raise _first(problem) from None
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "means something with stream only")
    try:
        request.check()
    except BadRequest as error:
        raise api_error(error, names_of(request)) from None
    return request


def _first(problem: ValidationError) -> ApiError:
    error = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    location = _path(error["loc"])
    if error["type"] == "extra_forbidden":
        return ApiError(400, f"{location} is not a parameter of this server.", param=location, code="unknown_parameter")
    code = "unsupported_value" if error["type"] == "unsupported" else "invalid_value"
    return invalid(location, error["msg"], code)


def _path(location: Iterable[str | int]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{ascii(step[:80])[1:-1]}"
    return path.removeprefix(".")
