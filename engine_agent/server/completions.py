"""`/v1/completions`: parse a body."""

from collections.abc import Sequence
from functools import partial

from engine_agent.engine.errors import RequestError
from engine_agent.http.extra_body import read_request
from engine_agent.server.answers import CompletionShape, Head
from engine_agent.server.errors import api_error
from engine_agent.server.face import Face, Understood
from engine_agent.server.schemas import CompletionRequest, Prompt, names_of, read_completion


async def understand_completion(face: Face, body: bytes) -> Understood:
    """Return a completion request's parsed body. Raises ApiError."""
    return await face.worked(lambda: _understood(face, body), on=body)


def _understood(face: Face, body: bytes) -> Understood:
    request = read_completion(read_request(body))
    face.check_model(request.model)
    try:
        sampling = request.sampling
        prompts = [_tokens(face, request, prompt) for prompt in request.prompt]
    except RequestError as error:
        raise api_error(error, names_of(request)) from None
    echoes = [_echo(face, request, prompt) for prompt in request.prompt]
    return Understood(request, tuple(prompts), sampling, partial(_shape, face, request, prompts, echoes), "cmpl-")


def _tokens(face: Face, request: CompletionRequest, prompt: Prompt) -> list[int]:
    special = request.add_special_tokens is not False
    tokens = prompt if isinstance(prompt, list) else face.tokenizer.encode(prompt, add_special=special)
    face.check_prompt(tokens)
    return tokens


def _shape(
    face: Face, request: CompletionRequest, prompts: Sequence[list[int]], echoed: Sequence[str], head: Head
) -> CompletionShape:
    echoes = [echo for echo in echoed for _ in range(request.n)]
    ids = [prompt for prompt in prompts for _ in range(request.n)] if request.return_token_ids else None
    return CompletionShape(head, face.tokenizer, len(echoes), echoes, ids)


def _echo(face: Face, request: CompletionRequest, prompt: Prompt) -> str:
    if not request.echo:
        return ""
    return (
        prompt if isinstance(prompt, str) else face.tokenizer.decode(prompt, skip_special=request.skip_special_tokens)
    )
