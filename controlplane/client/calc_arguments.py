"""The options of `luminet calc`. What they mean together is for the calculator to say."""

import argparse
import re

EXAMPLES = """examples:
  luminet calc --models
  luminet calc --model llama-3.1-70b --context 131072
  luminet calc --config config.json --kv-dtype bf16,fp8,int4 --accelerator h200 --tensor-parallel 4
"""
SIZES = {"": 1, "B": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
COUNTS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")


def calc_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    _model(parser.add_argument_group("which model"))
    _load(parser.add_argument_group("how much of it"))
    _machine(parser.add_argument_group("on what"))


def _model(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="NAME", help="one of those that --models lists")
    which.add_argument("--config", metavar="FILE", help="a Hugging Face config.json; - reads standard input")
    which.add_argument("--models", action="store_true", help="list the models that have a name here")
    group.add_argument("--parameters", type=number_read, metavar="N", help="8.03B: where a config's cannot be counted")
    group.add_argument("--active-parameters", type=number_read, metavar="N", help="those one token goes through")


def _load(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kv-dtype", type=names_read, metavar="NAMES", help="bf16,int4 or all; else those of policies")
    group.add_argument("--context", type=whole_read, metavar="TOKENS", help="of each request (8192)")
    group.add_argument("--concurrency", type=whole_read, metavar="N", help="requests at once (1)")
    group.add_argument("--shared-prefix", type=whole_read, metavar="TOKENS", help="of each context, held once")
    group.add_argument("--all-tokens", action="store_true", help="layers with windows keep every token, too")


def _machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--accelerator", metavar="NAME", help="a100, b200, b300, h100, h200, l40s, mi300x, rtx-4090")
    group.add_argument("--memory", type=size_read, metavar="SIZE", help="24GB or 24GiB: of another one, on each")
    group.add_argument("--bandwidth", type=size_read, metavar="SIZE", help="1.008TB: a second, on each")
    group.add_argument("--tensor-parallel", type=whole_read, metavar="N", help="GPUs that share the model (1)")
    group.add_argument("--memory-utilisation", type=share_read, metavar="SHARE", help="of the memory we may use (0.92)")
    group.add_argument("--reserve", type=size_read, metavar="SIZE", help="for activations, on each (1GiB)")
    weights = group.add_mutually_exclusive_group()
    weights.add_argument("--weights-dtype", metavar="NAME", help="bf16, fp8 or int4 and others: else as published")
    weights.add_argument("--weights", type=size_read, metavar="SIZE", help="all weights' size, where it is known")


def names_read(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")]


def whole_read(text: str) -> int:
    """Any whole number: which ones can be is for the calculator to say, so that there is one limit."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number of up to 18 digits")
    return int(text)


def size_read(text: str) -> int:
    """`24GB` is 24 · 10^9, `24GiB` 24 · 2^30."""
    return _read(text, SIZES, "size such as 24GB or 1.5GiB")


def number_read(text: str) -> int:
    """`8.03B`: billions."""
    return _read(text, COUNTS, "number such as 8.03B")


def share_read(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no share such as 0.92")
    return float(text)


def _read(text: str, units: dict[str, int], wanted: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {wanted}")
    before, _, after = found[1].partition(".")
    exact: int = int(before + after) * units[found[2]] // 10 ** len(after)
    return exact
