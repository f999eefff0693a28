"""The `luminet` command inside the process of a test, for tests that run it hundreds of times."""

import argparse
from collections.abc import Sequence
from functools import cache
from unittest.mock import patch

from controlplane import cli
from controlplane.cli import parser


@cache
def luminet_parser() -> argparse.ArgumentParser:
    """Return the parser that every call of `luminet` builds: it takes 17 ms, and parsing changes nothing in it."""
    return parser()


def luminet(arguments: Sequence[str]) -> int:
    """Run one command as `controlplane.cli.main` does, and return its status."""
    with patch.object(cli, "parser", luminet_parser):
        return cli.main(arguments)
