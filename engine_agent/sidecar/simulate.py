"""Run `luminet simulate`: many agents on one machine, with production's sidecar and simulated engines."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine_agent.process.commands import Parser, loop_factory, open_files_raise, run
from engine_agent.process.config import default_home
from engine_agent.process.logs import log_to_stderr
from engine_agent.sidecar.command import joining_options, joining_read
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.enrolment import Joining, credentials_ensured
from engine_agent.sidecar.errors import SidecarError
from engine_agent.sidecar.runtime import Runtime
from engine_agent.sidecar.simulated import SimulatedHolder, about

ABOUT = "Many agents of a fleet that have no engine: to try a control plane, and to see what it takes."
EXAMPLES = """examples:
  luminet simulate --join http://127.0.0.1:8000 --token ljt_… --agents 100 --processes 2

The join token must be good for as many uses. What they keep is theirs alone: the next start needs no token, and goes on
as the same agents.
"""
JOINING_AT_ONCE = 8
MOST_AGENTS = 10_000
MOST_TRAFFIC = 1_000


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    home: Path
    joining: Joining
    prefix: str
    first: int
    agents: int
    processes: int
    labels: dict[str, str]
    clock_skew: float
    traffic: float
    is_logging_json: bool

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}-{number:04}" for number in range(self.first, self.first + self.agents)]


def main(arguments: Sequence[str] | None = None) -> int:
    argument_list = list(sys.argv[1:] if arguments is None else arguments)
    return run(lambda: _run(_read(parser().parse_args(argument_list)), argument_list), SidecarError)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="luminet simulate",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    joining_options(top.add_argument_group("the control plane"))
    agents_group = top.add_argument_group("the agents")
    agents_group.add_argument("--agents", type=_count, default=10, metavar="N", help="how many (10)")
    agents_group.add_argument("--processes", type=_count, default=1, metavar="N", help="in so many processes (1)")
    agents_group.add_argument("--prefix", default="simulated", help="of their names: simulated-0001 and so on")
    agents_group.add_argument("--first", type=_count, default=1, metavar="N", help="number of the first of them (1)")
    agents_group.add_argument(
        "--label", action="append", type=_label, default=[], metavar="NAME=VALUE", help="of each; may be repeated"
    )
    agents_group.add_argument(
        "--clock-skew", type=float, default=0.0, metavar="SECONDS", help="how far this machine's clock is to seem ahead"
    )
    agents_group.add_argument(
        "--traffic", type=_rate, default=0.0, metavar="R", help="requests a second of each, reported as usage (0)"
    )
    agents_group.add_argument("--home", type=Path, metavar="DIR", help="what they keep (.luminet/simulated)")
    agents_group.add_argument("--json-logs", action="store_true", help="log lines for programs")
    return top


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_AGENTS:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 1 to {MOST_AGENTS}")
    return int(text)


def _rate(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (rate := float(text)) <= MOST_TRAFFIC:
            return rate
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 0 to {MOST_TRAFFIC}")


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not like tier=canary")
    return name, value


def _read(options: argparse.Namespace) -> SimulateOptions:
    return SimulateOptions(
        home=(options.home or default_home(os.environ, "simulated")).absolute(),
        joining=joining_read(options, os.environ),
        prefix=options.prefix,
        first=options.first,
        agents=options.agents,
        processes=min(options.processes, options.agents),
        labels=dict(options.label),
        clock_skew=options.clock_skew,
        traffic=options.traffic,
        is_logging_json=options.json_logs,
    )


def _run(options: SimulateOptions, argument_list: Sequence[str]) -> int:
    open_files_raise()
    if options.processes > 1:
        return _run_apart(options, argument_list)
    log_to_stderr(is_json=options.is_logging_json)
    logging.getLogger("celery").setLevel(logging.WARNING)  # with a thousand agents, a line for each message is too much
    if options.clock_skew:
        _clock_set(options.clock_skew)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_served(options))
    return 0


def _clock_set(skew_seconds: float) -> None:
    """Shift the clock of this process, as if the machine's clock were wrong."""
    right = time.time
    time.time = lambda: right() + skew_seconds


# Several processes: the parent only supervises them


def _run_apart(options: SimulateOptions, argument_list: Sequence[str]) -> int:
    processes = [subprocess.Popen(command) for command in _commands(options, argument_list)]

    def stop(number: int, frame: object) -> None:
        for process in processes:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return max(abs(process.wait()) for process in processes)


def _commands(options: SimulateOptions, argument_list: Sequence[str]) -> Iterator[list[str]]:
    """Yield each process's command line.

    The added options select its agents, because the last value of an option counts.
    """
    agents_per_process, remainder = divmod(options.agents, options.processes)
    first = options.first
    for number in range(options.processes):
        agents = agents_per_process + (number < remainder)
        own = ["--processes", "1", "--agents", str(agents), "--first", str(first)]
        yield [sys.executable, "-m", "engine_agent.sidecar.simulate", *argument_list, *own]
        first += agents


# One process


async def _served(options: SimulateOptions) -> None:
    stopping, joining = asyncio.Event(), asyncio.Semaphore(JOINING_AT_ONCE)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with asyncio.TaskGroup() as group:
        for name in options.names:
            group.create_task(_agent(options, name, joining, stopping))


async def _agent(options: SimulateOptions, name: str, joining: asyncio.Semaphore, stopping: asyncio.Event) -> None:
    """Run one agent until `stopping` is set."""
    home, own = options.home / name, replace(options.joining, name=name)
    async with joining:
        enrolling = asyncio.create_task(credentials_ensured(home, own, kind="engine", about=about(options.labels)))
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait({enrolling, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    if not enrolling.done():
        enrolling.cancel()
        return
    credentials = enrolling.result()
    holder = SimulatedHolder(name, labels=options.labels, traffic=options.traffic)
    await Runtime(SidecarConfig(home), credentials, holder).run(stopping)


if __name__ == "__main__":
    sys.exit(main())
