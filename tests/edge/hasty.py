"""Runs a part of Luminet with shorter deadlines: `python -m tests.edge.hasty MODULE [ARGUMENT…]`.

Tests of deadlines wait for them. What is bounded, and what happens then, is the product's own.
"""

import runpy
import sys

from engine_agent.gateway import limits as gateway_limits
from engine_agent.http import connections, listening, serving
from engine_agent.server import limits as engine_limits

HEAD_SECONDS, BODY_SECONDS, DISCARD_SECONDS, WRITE_SECONDS = 3.0, 3.0, 2.0, 3.0


def deadlines_shorten() -> None:
    defaults = serving.server_of.__kwdefaults__
    assert defaults is not None
    defaults["deadlines"] = connections.Deadlines(HEAD_SECONDS, BODY_SECONDS)  # the web has settings for them
    connections.PROGRESS_SECONDS = BODY_SECONDS
    connections.DISCARD_SECONDS = DISCARD_SECONDS
    listening.SILENT_MILLISECONDS = int(WRITE_SECONDS * 1_000)
    for limits in (gateway_limits.Limits, engine_limits.Limits):
        first = limits.__init__.__defaults__ or ()
        assert first[:2] == (60.0, 30.0), "receive_seconds and write_seconds"
        limits.__init__.__defaults__ = (BODY_SECONDS, WRITE_SECONDS, *first[2:])


if __name__ == "__main__":
    deadlines_shorten()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
