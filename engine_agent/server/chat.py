"""`/v1/chat/completions`: what a body of it asks for."""

from functools import partial

from engine_agent.engine.errors import RequestError
from engine_agent.http.extra_body import read_request
from engine_agent.server.answers import ChatShape, Head
from engine_agent.server.errors import api_error
from engine_agent.server.face import Face, Understood
from engine_agent.server.schemas import ChatRequest, names_of, read_chat


def understand_chat(face: Face, body: bytes) -> Understood:
    asked = read_chat(read_request(body))
    face.check_model(asked.model)
    try:
        sampling, prompt = asked.sampling, _prompt(face, asked)
    except RequestError as error:
        raise api_error(error, names_of(asked)) from None
    ids = prompt if asked.return_token_ids else None
    shape = partial(_shape, face, asked.n, ids)
    return Understood(asked, (prompt,), sampling, shape, "chatcmpl-")


def _prompt(face: Face, asked: ChatRequest) -> list[int]:
    text = face.template.render(
        [message.model_dump(exclude_none=True) for message in asked.messages],
        add_generation_prompt=asked.begins_an_answer,
        continue_final_message=asked.continue_final_message,
        kwargs=asked.chat_template_kwargs,
    )
    tokens = face.tokenizer.encode(text, add_special=bool(asked.add_special_tokens))  # the template writes its own
    face.check_prompt(tokens)
    return tokens


def _shape(face: Face, choices: int, prompt_ids: list[int] | None, head: Head) -> ChatShape:
    return ChatShape(head, face.tokenizer, choices, prompt_ids)
