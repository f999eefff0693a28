"""A process that renders chats, one at a time, within limits that no template can exceed.

The kernel enforces both: too much memory fails an allocation, which becomes an ordinary answer; too much processor time
ends the process by a signal, even inside a call into C.
"""

import contextlib
import gc
import resource
import signal
import socket
import sys
from functools import lru_cache

from jinja2 import TemplateSyntaxError

from engine_agent.prompts.chat import ChatTemplate
from engine_agent.prompts.errors import BadRequest
from engine_agent.prompts.exchange import Exchange
from engine_agent.prompts.frames import (
    HEAD,
    OUT_OF_MEMORY,
    READY,
    Answer,
    Request,
    refused_answer,
    request_decode,
    text_answer,
)
from engine_agent.prompts.templates import FIELD, TemplateSource

MOST_COMPILED = 64  # templates


def main(memory_bytes: int, cpu_seconds: float, exchange_fd: int) -> None:
    _confine(memory_bytes)
    connection, exchange = socket.socket(fileno=sys.stdin.fileno()), Exchange(exchange_fd)
    connection.sendall(HEAD.pack(0, READY))  # the parent's clock starts here
    serve(connection, exchange, cpu_seconds)


def serve(connection: socket.socket, exchange: Exchange, cpu_seconds: float) -> None:
    """Answer requests until the connection ends."""
    while head := connection.recv(HEAD.size, socket.MSG_WAITALL):
        size, _ = HEAD.unpack(head)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        kind, data = answer(exchange.take(size))
        size = exchange.put(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.sendall(HEAD.pack(size, kind))
        del kind, data
        gc.collect()  # now, while no request waits: garbage of this request counts against the memory of the next


def answer(request: bytes) -> Answer:
    try:
        return text_answer(_text(request_decode(request)))
    except BadRequest as problem:
        return refused_answer(problem)
    except MemoryError:
        return OUT_OF_MEMORY
    except TemplateSyntaxError as problem:
        return refused_answer(BadRequest(FIELD, f"line {problem.lineno}: {problem.message}"))
    except Exception as problem:  # a template's error must not end this process
        message = f"the model's chat template: {str(problem) or type(problem).__name__}"
        return refused_answer(BadRequest(FIELD, message))


def _text(request: Request) -> str:
    match request:
        case ("inspect", text):
            return ChatTemplate.from_source(text, {}).contents
        case ("render", source, chat):
            return _compiled(_key(source)).render_chat(chat)


def _confine(memory_bytes: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # for the parent, which may still have chats; this one ends with it
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    gc.disable()
    gc.freeze()


_Key = tuple[str | None, tuple[tuple[str, str], ...], str]


def _key(source: TemplateSource) -> _Key:
    return source.text, tuple(source.special_tokens.items()), source.contents


@lru_cache(maxsize=MOST_COMPILED)
def _compiled(key: _Key) -> ChatTemplate:
    text, special, contents = key
    return ChatTemplate.from_source(text, dict(special), contents)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
