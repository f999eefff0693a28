"""`luminet replay TRACE`: its options, their combinations, and its output."""

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TextIO

from engine_agent.cache.errors import CacheError
from engine_agent.process.commands import run
from engine_agent.process.option_types import whole_read
from engine_agent.tools.errors import ToolError
from engine_agent.tools.options import new_parser
from engine_agent.tools.plots import plotting_checked
from engine_agent.tools.replay.namespaces import flooded, namespaces_of, only, split
from engine_agent.tools.replay.outcome import Outcome
from engine_agent.tools.replay.plots import write_plots
from engine_agent.tools.replay.policies import (
    DEFAULT_TTLS,
    MODES,
    Setup,
    Shares,
    Ttl,
    factor_read,
    modes_read,
    seconds_read,
    share_read,
    spans_read,
    tokens_read,
    ttl_read,
    weight_read,
)
from engine_agent.tools.replay.report import document, headline, table
from engine_agent.tools.replay.running import replay
from engine_agent.tools.replay.tokens import LEAST_BLOCK_TOKENS
from engine_agent.tools.replay.trace import Request, read_trace
from engine_agent.tools.report import Progress, say_written, wants_colour

ABOUT = "Replay a request trace through the block manager and say what hit rate each policy would give."
EXAMPLES = """examples:
  luminet replay trace.jsonl
  luminet replay trace.jsonl --policy none --policy sliding:5m --policy absolute:5m --pool 5M --pool 15M
  luminet replay trace.jsonl --split 8 --only namespace-0 --flood 16 --policy none --pool 1.5M
"""
COLUMNS_UNWATCHED = 120


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _replayed(options), ToolError, CacheError)


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet replay", ABOUT, EXAMPLES)
    top.add_argument("trace", metavar="TRACE", help="JSON lines as in Mooncake's traces; - reads standard input")
    whole, block = whole_read(1), whole_read(LEAST_BLOCK_TOKENS)
    top.add_argument("--block-tokens", type=block, default=512, metavar="N", help="tokens behind each hash id (512)")
    top.add_argument("--head", type=whole, metavar="N", help="only the first N requests")
    top.add_argument("--json", action="store_true", help="for programs")
    top.add_argument("--plots", type=Path, metavar="DIR", help="draw hit rate and resident tokens, SVG and PNG")
    _compared(top.add_argument_group("what is compared", "a row for each policy and each pool"))
    _whose(top.add_argument_group("whose requests they are"))
    return top


def _compared(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--policy", type=ttl_read, action="append", default=[], help="none, sliding:300, absolute:5m; may be repeated"
    )
    group.add_argument(
        "--ttl", type=spans_read, action="extend", default=[], metavar="SECONDS", help="300, 5m, 60,300,600"
    )
    group.add_argument("--ttl-mode", type=modes_read, action="extend", default=[], help="sliding, absolute or both")
    group.add_argument(
        "--max-age", type=seconds_read, default=86_400.0, metavar="SECONDS", help="the cap on a block's age (24h)"
    )
    group.add_argument(
        "--pool", type=tokens_read, action="append", metavar="TOKENS", help="1.5M, 800k; may be repeated (no limit)"
    )
    group.add_argument(
        "--service-seconds-per-token",
        type=factor_read,
        default=0.0,
        metavar="SECONDS",
        help="hold a request's blocks until its answer is there, so long for each token (0: at once)",
    )


def _whose(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--split", type=whole_read(1), metavar="N", help="deal conversations out to N namespaces")
    group.add_argument("--only", metavar="NAMESPACE", help="leave the requests of others out")
    group.add_argument("--flood", type=factor_read, metavar="K", help="a flooder with K times as many, all new")
    group.add_argument("--one-cache", action="store_true", help="all in one namespace: a plain LRU without shares")
    for name, read in (("reserved", share_read), ("limit", share_read)):
        group.add_argument(f"--{name}", type=read, action="append", default=[], metavar="NAMESPACE=SHARE")
    group.add_argument("--weight", type=weight_read, action="append", default=[], metavar="NAMESPACE=N")


def _replayed(options: argparse.Namespace) -> int:
    if options.plots:
        plotting_checked()
    requests = _requests(options)
    setups = _setups(options, namespaces_of(requests))
    outcomes = _outcomes(requests, setups)
    name = _name(options.trace)
    if options.json:
        print(json.dumps(document(name, requests, outcomes)))
    else:
        columns = shutil.get_terminal_size((COLUMNS_UNWATCHED, 24)).columns
        print(headline(name, requests, options.block_tokens), end="\n\n")
        print(table(outcomes, columns=columns, is_colourful=wants_colour(sys.stdout)))
    if options.plots:
        say_written(*write_plots(outcomes, options.plots))
    return 0


def _requests(options: argparse.Namespace) -> list[Request]:
    with _opened(options.trace) as lines:
        try:
            requests = read_trace(lines, block_tokens=options.block_tokens, head=options.head)
        except ToolError as problem:
            raise ToolError(_name(options.trace), problem) from problem
    if options.split:
        requests = split(requests, options.split)
    if options.only:
        requests = only(requests, options.only)
    if options.flood:
        requests = flooded(requests, options.flood, block_tokens=options.block_tokens)
    return requests


def _name(trace: str) -> str:
    return "standard input" if trace == "-" else Path(trace).name


@contextlib.contextmanager
def _opened(trace: str) -> Iterator[TextIO]:
    if trace == "-":
        yield sys.stdin
        return
    with open(trace, encoding="utf-8-sig", errors="surrogateescape") as file:  # invalid text fails as invalid JSON
        yield file


def _setups(options: argparse.Namespace, namespaces: Sequence[str]) -> list[Setup]:
    setups = [
        Setup(
            ttl=ttl,
            pool_tokens=pool,
            block_tokens=options.block_tokens,
            max_age_seconds=options.max_age,
            shares=_shares(options, namespaces),
            is_one_cache=options.one_cache,
            service_seconds_per_token=options.service_seconds_per_token,
        )
        for pool, ttl in product(options.pool or [None], _ttls(options))
    ]
    try:
        for name in namespaces:
            setups[0].policy_of(name)
    except CacheError as problem:
        raise ToolError("--reserved and --limit", str(problem)) from problem
    return setups


def _ttls(options: argparse.Namespace) -> Sequence[Ttl]:
    """Return the named policies and every combination of span and mode, or the defaults."""
    policies = list(options.policy)
    if options.ttl or options.ttl_mode:
        policies += [Ttl(mode, span) for mode, span in product(options.ttl_mode or MODES[:1], options.ttl or [300.0])]
    return list(dict.fromkeys(policies)) or DEFAULT_TTLS


def _shares(options: argparse.Namespace, namespaces: Sequence[str]) -> dict[str, Shares]:
    reserved, limit, weight = (dict(pairs) for pairs in (options.reserved, options.limit, options.weight))
    for option, shares in (("--reserved", reserved), ("--limit", limit), ("--weight", weight)):
        for name in shares:
            if options.one_cache:
                raise ToolError(option, "goes with --one-cache as little as any share")
            if not options.pool:
                raise ToolError(option, "is a share of a pool, so it needs --pool")
            if name not in namespaces:
                raise ToolError(option, f"no request is of the namespace {name}")
    if sum(reserved.values()) > 1:
        raise ToolError("--reserved", f"{sum(reserved.values()):g} together, and the pool is 1")
    return {
        name: Shares(reserved.get(name, 0.0), limit.get(name, 1.0), weight.get(name, 1.0))
        for name in {*reserved, *limit, *weight}
    }


def _outcomes(requests: Sequence[Request], setups: Sequence[Setup]) -> list[Outcome]:
    outcomes = []
    with Progress(sys.stderr) as progress:
        for number, setup in enumerate(setups):
            label = f"{setup.label} ({number + 1} of {len(setups)})"

            def on_step(arrived: int, label: str = label, previous_steps: int = number * len(requests)) -> None:
                progress.show(label, previous_steps + arrived, len(setups) * len(requests))

            outcomes.append(replay(requests, setup, on_step=on_step))
    return outcomes
