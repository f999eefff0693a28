"""`/v1/chat/completions`: parse a body."""

from functools import partial

from engine_agent.engine.errors import RequestError
from engine_agent.engine.params import SamplingParams
from engine_agent.http.extra_body import read_request
from engine_agent.prompts.templates import Chat
from engine_agent.server.answers import ChatShape, Head
from engine_agent.server.errors import api_error
from engine_agent.server.face import Face, Understood
from engine_agent.server.schemas import ChatRequest, names_of, read_chat


async def understand_chat(face: Face, body: bytes) -> Understood:
    """Return a chat request's parsed body. Raises ApiError."""
    request, sampling, packed = await face.worked(lambda: _asked(face, body), on=body)
    try:
        text = await face.template.render(packed)
        tokens = await face.worked(lambda: _tokens(face, request, text), on=text)
    except RequestError as error:
        raise api_error(error, names_of(request)) from None
    ids = tokens if request.return_token_ids else None
    return Understood(request, (tokens,), sampling, partial(_shape, face, request.n, ids), "chatcmpl-")


def _asked(face: Face, body: bytes) -> tuple[ChatRequest, SamplingParams, bytes]:
    """Return the request, its sampling parameters, and its chat packed for the template."""
    request = read_chat(read_request(body))
    face.check_model(request.model)
    try:
        return request, request.sampling, face.template.pack(_chat(request))
    except RequestError as error:
        raise api_error(error, names_of(request)) from None


def _chat(request: ChatRequest) -> Chat:
    return Chat(
        [message.model_dump(exclude_none=True) for message in request.messages],
        add_generation_prompt=request.begins_an_answer,
        continue_final_message=request.continue_final_message,
        kwargs=request.chat_template_kwargs or {},
    )


def _tokens(face: Face, request: ChatRequest, text: str) -> list[int]:
    tokens = face.tokenizer.encode(text, add_special=bool(request.add_special_tokens))  # the template adds its own
    face.check_prompt(tokens)
    return tokens


def _shape(face: Face, choices: int, prompt_ids: list[int] | None, head: Head) -> ChatShape:
    return ChatShape(head, face.tokenizer, choices, prompt_ids)
