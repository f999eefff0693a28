"""`luminet savings`: its options, the measurement, and its output."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from engine_agent.engine.config import read_config
from engine_agent.engine.errors import EngineError
from engine_agent.process.commands import run
from engine_agent.process.option_types import whole_read
from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.asking import session
from engine_agent.tools.loadgen.finding import find_server
from engine_agent.tools.loadgen.options import FORMS, range_read, url_read
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.workloads import FIRST_TOKEN, LAST_TOKEN, Vocabulary
from engine_agent.tools.options import above_zero, new_parser
from engine_agent.tools.plots import plotting_checked
from engine_agent.tools.report import Progress, print_or_write, say_written
from engine_agent.tools.savings.capacity import Room, room_in
from engine_agent.tools.savings.engine import cpu_seconds_of, engine_running
from engine_agent.tools.savings.machine import described
from engine_agent.tools.savings.measuring import measure
from engine_agent.tools.savings.plan import Plan, Prompts
from engine_agent.tools.savings.plots import write_plots
from engine_agent.tools.savings.report import table
from engine_agent.tools.savings.result import Result
from kernels.formats import KV_FORMATS
from kernels.layout import BLOCK_TOKENS, PageLayout

POOL_BYTES = 256 * 2**20
ABOUT = "Measure what prefix caching saves: time to first token, cost per request, and requests at once."
EXAMPLES = """examples:
  luminet savings --model engine_agent/demo/model
  luminet savings --url http://127.0.0.1:8101/v1 --key "$KEY" --price-per-hour 2.5 --json savings.json --plots plots

It asks request by request in turns, once with a template that is cached and once with a prompt that begins like no
other, then more and more at once. Nobody else should use the machine meanwhile.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _run(options), ToolError, EngineError)


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet savings", ABOUT, EXAMPLES)
    where = top.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", type=url_read, help="a server that runs, such as http://127.0.0.1:8101/v1")
    where.add_argument("--model", type=Path, metavar="PATH", help="start an engine for this model, and stop it again")
    top.add_argument("--key", help="with --url: the bearer token (LUMINET_API_KEY)")
    top.add_argument("--name", default="", help="with --url: what the model is called there (the first it names)")
    top.add_argument("--prompts", choices=FORMS, default="auto", help="token ids, text or chat (ids where taken)")
    top.add_argument("--threads", type=whole_read(1), default=1, metavar="N", help="with --model: of the engine (1)")
    top.add_argument("--pool-blocks", type=whole_read(1), metavar="N", help="with --url: blocks its pool has, if known")
    top.add_argument("--json", type=Path, metavar="FILE", help="all figures and samples; - is standard output")
    top.add_argument("--plots", type=Path, metavar="DIR", help="draw both sides, SVG and PNG")
    _measurement(top.add_argument_group("what is measured"))
    return top


def _measurement(group: argparse._ArgumentGroup) -> None:
    default, whole = Plan(), whole_read(1)
    group.add_argument(
        "--template-tokens", type=whole_read(16), default=default.template_tokens, metavar="N", help="(6,000)"
    )
    group.add_argument("--tail-tokens", type=whole, default=default.tail_tokens, metavar="N", help="(64)")
    group.add_argument("--output-tokens", type=whole, default=default.output_tokens, metavar="N", help="(32)")
    group.add_argument("--rounds", type=whole_read(2), default=default.rounds, metavar="N", help="each side's n (20)")
    group.add_argument("--most-together", type=whole, default=default.most_together, metavar="N", help="(32)")
    group.add_argument(
        "--bound", type=above_zero, metavar="MS", help="for first tokens (4 × the median without caching)"
    )
    group.add_argument("--price-per-hour", type=above_zero, default=1.0, metavar="X", help="of the machine (1)")
    group.add_argument("--vocabulary", type=range_read, default=(FIRST_TOKEN, LAST_TOKEN), metavar="FIRST:LAST")
    group.add_argument("--seed", type=whole_read(0), metavar="N", help="of the prompts (a new one each time)")


def plan_of(options: argparse.Namespace) -> Plan:
    return Plan(
        template_tokens=options.template_tokens,
        tail_tokens=options.tail_tokens,
        output_tokens=options.output_tokens,
        rounds=options.rounds,
        most_together=options.most_together,
        bound_ms=options.bound,
        price_per_hour=options.price_per_hour,
        seed=options.seed if options.seed is not None else int.from_bytes(os.urandom(4)),
    )


def _run(options: argparse.Namespace) -> int:
    if options.plots:
        plotting_checked()
    with ExitStack() as opened:
        cpu_seconds: Callable[[], float] | None = None
        if options.model is None:
            server = Server(options.url, options.name, options.key or os.environ.get("LUMINET_API_KEY") or None)
        else:
            engine = opened.enter_context(engine_running(options.model, ("--threads", str(options.threads))))
            server = Server(engine.url, "", engine.key)
            if cpu_seconds_of(engine.pid) is not None:
                cpu_seconds = lambda: cpu_seconds_of(engine.pid) or 0.0  # noqa: E731
        result = asyncio.run(measured(server, plan_of(options), options, cpu_seconds))
    print_or_write(table(result), result.document(), options.json)
    if options.plots:
        say_written(*write_plots(result, options.plots))
    return 0


async def measured(
    server: Server, plan: Plan, options: argparse.Namespace, cpu_seconds: Callable[[], float] | None = None
) -> Result:
    vocabulary = Vocabulary(*options.vocabulary)
    machine = described()
    with Progress(sys.stderr) as progress:
        async with session() as opened:
            server = await find_server(opened, server, wants=options.prompts, vocabulary=vocabulary)
            prompts = Prompts(plan, vocabulary)
            measurement = await measure(opened, server, plan, prompts, cpu_seconds=cpu_seconds, on_step=progress.show)
    kv_dtype = measurement.sides["with"].outcomes[0].kv_dtype
    return Result(server, plan, measurement, machine, _room(options, plan, kv_dtype), kv_dtype)


def _room(options: argparse.Namespace, plan: Plan, kv_dtype: str | None) -> Room | None:
    blocks = options.pool_blocks if options.model is None else blocks_of(options.model, kv_dtype)
    if blocks is None:
        return None
    own_tokens = plan.tail_tokens + plan.output_tokens
    return room_in(blocks, template_tokens=plan.template_tokens, own_tokens=own_tokens, block_tokens=BLOCK_TOKENS)


def blocks_of(model: Path, kv_dtype: str | None, pool_bytes: int = POOL_BYTES) -> int | None:
    """Return how many blocks of a format fit a pool of this size."""
    if kv_dtype not in KV_FORMATS:
        return None
    config = read_config(model)
    return pool_bytes // PageLayout(KV_FORMATS[kv_dtype], config.layers, config.kv_heads, config.head_size).page_bytes
