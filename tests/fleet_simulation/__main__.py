"""`python -m tests.fleet_simulation --seed N`: replay one run; `--from A --to B`: all of these, until one fails."""

import argparse
import os
import sys
import time

import django


def main() -> int:
    options = _parser().parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()  # some of the real parts live beside models
    from tests.fleet_simulation.seeds import seeds_run

    first, last = (options.seed, options.seed) if options.seed is not None else (options.first, options.last)
    began = time.perf_counter()
    failed = seeds_run(range(first, last + 1), is_telling=options.seed is not None)
    print(f"{last - first + 1} runs in {time.perf_counter() - began:.1f} s, {len(failed)} failed")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet_simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run, with all that happened in it")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=9_999)
    return parser


if __name__ == "__main__":
    sys.exit(main())
