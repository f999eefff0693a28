"""`luminet bench`: build the workload, send it, and print the results."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from engine_agent.process.commands import run
from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.arrivals import arrival_seconds
from engine_agent.tools.loadgen.asking import session
from engine_agent.tools.loadgen.finding import find_server
from engine_agent.tools.loadgen.options import parser
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.report import document, headline, table
from engine_agent.tools.loadgen.running import send_at, send_together, timed
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.summary import summary_of
from engine_agent.tools.loadgen.workloads import Asked, Vocabulary, random_prompts, shared_prefix_prompts, trace_prompts
from engine_agent.tools.replay.trace import read_trace
from engine_agent.tools.report import Progress, print_or_write, wants_colour

REQUESTS = 100
FAILED = 3
WARMUP_SEED = "warm-up"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: asyncio.run(_measured(options)), ToolError)


async def _measured(options: argparse.Namespace) -> int:
    workload = workload_of(options)
    vocabulary = Vocabulary(*options.vocabulary)
    async with session() as opened:
        server = await find_server(opened, _server(options), wants=options.prompts, vocabulary=vocabulary)
        if options.warmup:
            await send_together(opened, server, _warmup(options, vocabulary), concurrency=options.concurrency or 1)
        outcomes = await _sent(opened, server, workload, options)
    _say(options, server, outcomes)
    return FAILED if any(not outcome.is_answered for outcome in outcomes) else 0


def _server(options: argparse.Namespace) -> Server:
    return Server(
        url=options.url,
        model=options.model,
        key=options.key or os.environ.get("LUMINET_API_KEY") or None,
        timeout_seconds=options.timeout,
        headers=dict(options.header),
        extra=options.extra,
    )


def workload_of(options: argparse.Namespace) -> list[Asked]:
    """Return the workload of the options, with its times. Raises ToolError, OSError."""
    vocabulary = Vocabulary(*options.vocabulary)
    if (options.dataset == "trace") != (options.trace is not None):
        raise ToolError("--trace", "goes with --dataset trace, and --dataset trace with it")
    workload = _trace(options, vocabulary) if options.dataset == "trace" else _made(options, vocabulary)
    if options.longest:
        workload = [request for request in workload if len(request.tokens) <= options.longest]
    if not workload:
        raise ToolError("--longest", f"no prompt is as short as {options.longest:,} tokens")
    if options.rate:
        moments = arrival_seconds(len(workload), rate=options.rate, burstiness=options.burstiness, seed=options.seed)
        return timed(workload, moments)
    return workload


def _made(options: argparse.Namespace, vocabulary: Vocabulary) -> list[Asked]:
    count = options.requests or REQUESTS
    lengths = {"input_tokens": options.input_tokens, "output_tokens": options.output_tokens}
    if options.dataset == "random":
        return random_prompts(count, **lengths, vocabulary=vocabulary, seed=options.seed)
    return shared_prefix_prompts(
        count,
        **lengths,
        prefix_tokens=options.prefix_tokens,
        prefixes=options.prefixes,
        vocabulary=vocabulary,
        seed=options.seed,
    )


def _trace(options: argparse.Namespace, vocabulary: Vocabulary) -> list[Asked]:
    with Path(options.trace).open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        requests = read_trace(lines, block_tokens=options.trace_block_tokens, head=options.requests)
    return trace_prompts(
        requests,
        block_tokens=options.trace_block_tokens,
        scale=options.trace_scale,
        vocabulary=vocabulary,
        seed=options.seed,
    )


def _warmup(options: argparse.Namespace, vocabulary: Vocabulary) -> list[Asked]:
    """Return prompts of the run's lengths that share no beginning with its prompts, so nothing of them can be hit."""
    return [
        Asked(vocabulary.draw(options.input_tokens, WARMUP_SEED, os.getpid(), number), options.output_tokens)
        for number in range(options.warmup)
    ]


async def _sent(
    opened: aiohttp.ClientSession, server: Server, workload: Sequence[Asked], options: argparse.Namespace
) -> list[Outcome]:
    with Progress(sys.stderr) as progress:

        def on_answer(answered: int) -> None:
            progress.show("answered", answered, len(workload))

        if options.concurrency:
            return await send_together(opened, server, workload, concurrency=options.concurrency, on_answer=on_answer)
        return await send_at(opened, server, workload, speed=options.speed, on_answer=on_answer)


def _say(options: argparse.Namespace, server: Server, outcomes: Sequence[Outcome]) -> None:
    summary = summary_of(outcomes)
    json_document = document(server, asked(options), summary, outcomes if options.details else ())
    text = table(summary, is_colourful=wants_colour(sys.stdout))
    print_or_write(f"{headline(server, described(options, len(outcomes)))}\n\n{text}", json_document, options.json)


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that affect the figures, without the key."""
    names = (
        "dataset", "requests", "input_tokens", "output_tokens", "prefix_tokens", "prefixes", "trace", "trace_scale",
        "longest", "seed", "warmup", "rate", "burstiness", "concurrency", "speed",
    )  # fmt: skip
    return {name: str(setting) if (setting := getattr(options, name)) == float("inf") else setting for name in names}


def described(options: argparse.Namespace, count: int) -> str:
    if options.concurrency:
        traffic = f"{options.concurrency:,} at a time"
    elif options.rate:
        traffic = f"{options.rate:g} a second"
    else:
        traffic = f"the trace's own times × {options.speed:g}" if options.trace else "all at once"
    return f"{options.dataset}, {count:,} requests, {traffic}"
