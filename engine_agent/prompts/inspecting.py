"""Detects how a chat template takes contents, in a process with limits: compiling evaluates constants."""

import socket
from functools import lru_cache

from engine_agent.prompts.bounds import START_SECONDS, Bounds, process_start
from engine_agent.prompts.frames import ASKS, HEAD, OutOfMemory, answer_decode, inspect_request
from engine_agent.prompts.templates import CONTENTS, Contents


@lru_cache(maxsize=64)
def template_contents(text: str, bounds: Bounds | None = None) -> Contents:
    """Raise RequestError if the template is invalid or takes too much to compile, OSError without a process."""
    bounds = bounds or Bounds()
    started = process_start(bounds)
    try:
        with started.connection as connection:
            connection.settimeout(START_SECONDS)
            connection.recv(HEAD.size, socket.MSG_WAITALL)  # the process is ready
            connection.settimeout(bounds.wall_seconds)
            connection.sendall(HEAD.pack(started.exchange.put(inspect_request(text)), ASKS))
            head = connection.recv(HEAD.size, socket.MSG_WAITALL)
        if not head:
            raise bounds.ended(started.process.wait(bounds.wall_seconds))
        size, kind = HEAD.unpack(head)
        answer = answer_decode(kind, started.exchange.take(size))
    except OutOfMemory:
        raise bounds.out_of_memory() from None
    except TimeoutError:
        raise bounds.out_of_time() from None
    finally:
        started.process.kill()
        started.process.wait()
        started.exchange.close()
    return next(contents for contents in CONTENTS if contents == answer)
