"""The options of `luminet bench` and the parsers of their values."""

import argparse
import json
from pathlib import Path
from typing import Any

from engine_agent.process.option_types import whole_read
from engine_agent.tools.loadgen.server import checked_url
from engine_agent.tools.loadgen.workloads import FIRST_TOKEN, LAST_TOKEN
from engine_agent.tools.options import MOST, above_zero, float_read, new_parser

DATASETS = ("random", "shared-prefix", "trace")
FORMS = ("auto", "ids", "text", "chat")
ABOUT = "Ask an OpenAI server what a workload asks, and say how long its answers took."
EXAMPLES = """examples:
  luminet bench --url http://127.0.0.1:8101/v1 --key "$KEY" --requests 50 --concurrency 8
  luminet bench --url http://127.0.0.1:8101/v1 --dataset shared-prefix --prefix-tokens 4000 --rate 2 --json run.json
  luminet bench --url http://127.0.0.1:8101/v1 --dataset trace --trace trace.jsonl --trace-scale 0.05 --speed 4

status: 0 when every request was answered, 3 when some failed, 1 when something is wrong.
"""


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet bench", ABOUT, EXAMPLES)
    top.add_argument("--json", type=Path, metavar="FILE", help="write all figures there; - is standard output")
    top.add_argument("--details", action="store_true", help="with --json: every single request too")
    _server(top.add_argument_group("whom to ask"))
    _workload(top.add_argument_group("what to ask"))
    _traffic(top.add_argument_group("when to ask", "all of the workload at once where nothing is said"))
    return top


def _server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--url", type=url_read, required=True, help="such as http://127.0.0.1:8101/v1")
    group.add_argument("--key", default=None, help="the bearer token (LUMINET_API_KEY)")
    group.add_argument("--model", default="", help="the name it is served under (the first the server names)")
    group.add_argument(
        "--prompts", choices=FORMS, default="auto", help="as token ids, as text or as a chat (ids where they are taken)"
    )
    group.add_argument("--header", type=header_read, action="append", default=[], metavar="NAME:VALUE")
    group.add_argument("--extra", type=object_read, default={}, metavar="JSON", help='added to each body: {"top_p": 1}')
    group.add_argument("--timeout", type=above_zero, default=600.0, metavar="SECONDS", help="for one answer (600)")


def _workload(group: argparse._ArgumentGroup) -> None:
    whole = whole_read(1)
    group.add_argument("--dataset", choices=DATASETS, default="random")
    group.add_argument("--requests", type=whole, metavar="N", help="(100; of a trace: all)")
    group.add_argument("--input-tokens", type=whole, default=512, metavar="N", help="of a prompt, or of its tail (512)")
    group.add_argument("--output-tokens", type=whole, default=64, metavar="N", help="of an answer (64)")
    group.add_argument("--prefix-tokens", type=whole, default=2048, metavar="N", help="of a shared prefix (2,048)")
    group.add_argument("--prefixes", type=whole, default=1, metavar="N", help="how many different ones (1)")
    group.add_argument("--trace", metavar="FILE", help="JSON lines as in Mooncake's traces")
    group.add_argument("--trace-block-tokens", type=whole, default=512, metavar="N", help="behind each hash id (512)")
    group.add_argument("--trace-scale", type=above_zero, default=1.0, metavar="X", help="shorten prompts and answers")
    group.add_argument("--longest", type=whole, metavar="N", help="leave out prompts of more tokens")
    group.add_argument("--seed", type=whole_read(0), default=0, metavar="N", help="equal seeds, equal prompts (0)")
    group.add_argument(
        "--vocabulary",
        type=range_read,
        default=(FIRST_TOKEN, LAST_TOKEN),
        metavar="FIRST:LAST",
        help=f"ids that prompts are made of ({FIRST_TOKEN}:{LAST_TOKEN})",
    )
    group.add_argument("--warmup", type=whole_read(0), default=0, metavar="N", help="requests before, not measured (0)")


def _traffic(group: argparse._ArgumentGroup) -> None:
    either = group.add_mutually_exclusive_group()
    either.add_argument("--rate", type=rate_read, metavar="R", help="requests a second; inf: all at once")
    either.add_argument("--concurrency", type=whole_read(1), metavar="C", help="so many at a time")
    group.add_argument(
        "--burstiness", type=above_zero, default=1.0, metavar="X", help="with --rate: 1 Poisson, < 1 bursts"
    )
    group.add_argument("--speed", type=above_zero, default=1.0, metavar="X", help="of a trace's own times (1)")


def url_read(text: str) -> str:
    try:
        return checked_url(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def header_read(text: str) -> tuple[str, str]:
    """Parse a header such as `x-luminet-namespace: support`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no header such as x-luminet-namespace:support")
    return name.strip().lower(), value.strip()


def object_read(text: str) -> dict[str, Any]:
    """Parse a JSON object such as `{"kv_cache_dtype": "int4"}`."""
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"is no JSON: {problem}") from problem
    if not isinstance(parsed, dict):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no JSON object")
    return parsed


def rate_read(text: str) -> float:
    """Parse a rate such as `2.5` or `inf`."""
    rate = float_read(text)
    if not rate > 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no rate above 0")
    return rate


def range_read(text: str) -> tuple[int, int]:
    """Parse a range such as `100:999`."""
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or not int(first) < int(last) <= MOST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no range such as 100:999")
    return int(first), int(last)
