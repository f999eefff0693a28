"""`luminet engine --model PATH`: run one engine with its sockets and state, from the command line to an exit status."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine_agent.backends.engine_config import engine_config, engine_options
from engine_agent.backends.registry import backend_entry
from engine_agent.cache.errors import CacheError
from engine_agent.engine.config import read_config
from engine_agent.engine.errors import EngineError, EngineFailed
from engine_agent.http.listening import CannotListen, bind_tcp, listen_unix
from engine_agent.journal.journal import JournalError
from engine_agent.process.commands import Parser, loop_factory, open_files_raise, run
from engine_agent.process.last_words import last_words_leave
from engine_agent.process.logs import log_to_stderr
from engine_agent.server.doors import Doors
from engine_agent.server.policy_file import PolicyFile, read_policy_file
from engine_agent.server.state import StateFolder, read_secret

if TYPE_CHECKING:
    from engine_agent.backends.base import OpenBackend

log = logging.getLogger("engine_agent.server.command")  # also when this runs as __main__
ABOUT = "Serve a model with the OpenAI API, with a prefix cache that obeys a policy."
EXAMPLES = """examples:
  luminet engine --model engine_agent/demo/model
  luminet engine --model ~/models/qwen3-0.6b --port 8102 --pool 2GiB --policy policy.toml
"""
SHORTEST_IDENTITY_SECRET = 32


def main(arguments: Sequence[str] | None = None) -> int:
    began = time.perf_counter()
    options = parser().parse_args(arguments)
    return run(
        lambda: _run(options, sys.argv[1:] if arguments is None else arguments, began),
        EngineError,
        CacheError,
        JournalError,
        CannotListen,
        MemoryError,
        tell=lambda reason: last_words_leave(options.state, reason) if options.state else None,
    )


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="luminet engine",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engine_options(top)
    return top


def _run(options: argparse.Namespace, arguments: Sequence[str], began: float) -> int:
    """Open everything the engine needs, in order of how quickly errors appear: files, ports, and the model last."""
    config = engine_config(options, os.environ)
    log_to_stderr(is_json=config.is_logging_json)
    read_config(config.model)
    backend_entry(config.backend).prepare(config, arguments)
    policy = read_policy_file(config.policy) if config.policy else PolicyFile()
    secrets = [read_secret(path, least=SHORTEST_IDENTITY_SECRET) for path in config.identity_secrets]
    with ExitStack() as opened:
        public = opened.enter_context(bind_tcp(config.host, config.port))
        options.port = public.getsockname()[1]
        config = engine_config(options, os.environ)  # a free port is now known; the state directory is named after it
        state = opened.enter_context(closing(StateFolder(config.state)))
        if config.admin_socket is None:
            admin = opened.enter_context(bind_tcp("127.0.0.1", config.admin_port))
            config = replace(config, admin_port=admin.getsockname()[1])
        else:
            admin = opened.enter_context(listen_unix(config.admin_socket))
        resources = Doors(
            config=config,
            state=state,
            public=public,
            admin=admin,
            api_key=state.secret("api-key", "lml_") if config.is_alone else None,
            admin_token=state.secret("admin-token", "lma_") if config.admin_socket is None else None,
            identity_secrets=secrets,
            policy=policy,
        )
        runner = opened.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        return runner.run(_served(resources, began))


async def _served(resources: Doors, began: float) -> int:
    say = log.info if resources.config.is_logging_json else _say
    say(f"loading {resources.config.model}")
    backend, kernels = await backend_entry(resources.config.backend).open(resources.config, say)
    from prometheus_client import disable_created_metrics

    from engine_agent.prompts.bundle import Bundle
    from engine_agent.server.serve import EngineProcess

    # Series with their creation times would double the page.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    config = resources.config
    backend.on_death = partial(os.kill, os.getpid(), signal.SIGTERM)  # our supervisor starts another
    try:
        open_files_raise()
        bundle = Bundle.from_folder(config.model, vocab_size=backend.card.vocab_size)
        process = EngineProcess(resources, backend, backend.tokenizer, bundle)
        status = await process.run(lambda: _say_ready(resources, backend, kernels, began))
        if backend.is_dead:
            raise EngineFailed("", backend.why_dead)
        return status
    finally:
        await backend.close()


def _say(line: str) -> None:
    print(f"luminet: {line} …", file=sys.stderr, flush=True)


def _say_ready(resources: Doors, backend: "OpenBackend", kernels: str, began: float) -> None:
    from engine_agent.server.welcome import Ready, welcome, welcome_line

    config = resources.config
    ready = Ready(
        config=config,
        settings=backend.settings,
        card=backend.card,
        seconds=time.perf_counter() - began,
        admin=str(config.admin_socket or f"http://127.0.0.1:{config.admin_port}"),
        api_key=resources.api_key,
        kernels=kernels,
    )
    print(welcome_line(ready) if config.is_logging_json else welcome(ready), flush=True)


if __name__ == "__main__":
    sys.exit(main())
