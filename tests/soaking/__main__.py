"""Web, worker and gateway under ordinary and hostile traffic: `python -m tests.soaking --minutes 20`.

Judged are the slope of each process's memory after a warm-up and its peak, and nothing that depends on how fast the
machine is. Writes memory.json and, where matplotlib is there, memory.png. Ends with 1 where a process grows.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from controlplane.settings.env import CHECKOUT
from tests.fleet.fleets import Fleet, Part, fleet_running, inside
from tests.soaking.memory import MOST_PEAK_SHARE, compose_limit_mb, peak_mb, resident_mb
from tests.soaking.slopes import Sample, Verdict, verdict
from tests.soaking.traffic import Traffic
from tests.usage.fleets import customer, engine_agent, gateway, organisation_make

OUT = CHECKOUT / ".luminet" / "soak"
SAMPLE_SECONDS = 5.0  # or less, where a run is short
SIMULATED = 20  # agents that report
# Twelve minutes resolve one step of 4 MB. What this soak was written for grew by 160 MB an hour.
MOST_MB_PER_HOUR = 20.0
JUDGED = ("web", "worker", "gateway")
ABOUT = {"kind": "engine", "name": None, "about": {"backend": "simulated", "version": "0.1.0"}}


@contextmanager
def everything_running() -> Iterator[tuple[Mapping[str, Part], Traffic]]:
    """The processes that are judged, and their traffic, which has not begun."""
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_running())
        inside(fleet, "tests.integration.test_random_web:files_collect")
        fleet.parts["web"].stop()
        fleet.parts["web"].start()
        organisation_make(fleet, "acme", "chat")
        stack.enter_context(engine_agent(fleet, "agent-1"))
        part, address = stack.enter_context(gateway(fleet))
        fleet.simulate(SIMULATED)
        yield {**fleet.parts, "gateway": part}, _traffic(fleet, address)


def _traffic(fleet: Fleet, gateway_address: str) -> Traffic:
    cookies = json.loads(inside(fleet, "tests.usage.inside:operator_session"))
    enrolled = httpx.post(f"{fleet.web}/agent/v1/enrol", json={**ABOUT, "token": fleet.tokens["join"]}).json()
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    return Traffic(fleet, cookie, enrolled["token"], gateway_address, customer(fleet, "acme"))


def soak(seconds: float, parts: Mapping[str, Part], traffic: Traffic) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in JUDGED}
    began = time.monotonic()
    with traffic.going_on():
        while (at := time.monotonic() - began) < seconds:
            for name, seen in samples.items():
                seen.append(Sample(round(at, 1), resident_mb(parts[name])))
            time.sleep(min(SAMPLE_SECONDS, seconds / 100))
    return samples


def faults(name: str, found: Verdict) -> list[str]:
    """What is wrong with a process, in words."""
    problems = []
    if found.is_growing:
        problems.append(f"{name} grows by {found.slope_mb_per_hour:.1f} MB an hour: at most {MOST_MB_PER_HOUR:g}")
    most = MOST_PEAK_SHARE * compose_limit_mb(name)
    if found.peak_mb > most:
        problems.append(f"{name} took {found.peak_mb:.0f} MB at its peak: at most {most:.0f}")
    return problems


def table(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    yield f"{'process':<10}{'start MB':>10}{'warm MB':>10}{'end MB':>10}{'peak MB':>10}{'MB/hour':>10}{'allowed':>10}"
    for name, found in verdicts.items():
        numbers = (found.start_mb, found.warm_mb, found.end_mb, found.peak_mb, found.slope_mb_per_hour)
        yield f"{name:<10}" + "".join(f"{number:>10.1f}" for number in numbers) + f"{found.most_mb_per_hour:>10.1f}"


def picture(samples: Mapping[str, Sequence[Sample]], path: Path) -> None:
    """Raises ImportError without matplotlib."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, seen in samples.items():
        axes.plot([sample.seconds / 60 for sample in seen], [sample.megabytes for sample in seen], label=name)
    axes.set(xlabel="minutes", ylabel="resident memory, MB", ylim=(0, None))
    axes.legend()
    figure.savefig(path)


def write(out: Path, document: Mapping[str, Any], samples: Mapping[str, Sequence[Sample]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "memory.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    try:
        picture(samples, out / "memory.png")
    except ImportError as problem:
        print(f"no picture: {problem}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soaking", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with everything_running() as (parts, traffic):
        samples = soak(60 * options.minutes, parts, traffic)
        peaks = {name: peak_mb(parts[name]) for name in JUDGED}
    limits = dict.fromkeys(JUDGED, MOST_MB_PER_HOUR)
    verdicts = {
        name: verdict([*seen], most_mb_per_hour=limits[name], peak_mb=peaks[name]) for name, seen in samples.items()
    }
    problems = [fault for name, found in verdicts.items() for fault in faults(name, found)]
    document = {
        "minutes": options.minutes,
        "verdicts": {name: asdict(found) for name, found in verdicts.items()},
        "faults": problems,
        "done": traffic.done,
        "problems": traffic.problems,
        "samples": samples,
    }
    write(options.out, document, samples)
    print(*table(verdicts), *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
