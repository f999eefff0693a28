"""What only the data plane can tell, or only the tests: asked in processes of their own, or by name.

The control plane imports no engine. A process of its own also ends when its time is over, whatever it hangs in.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from controlplane.doctor.finding import TAKE_LONGER, Finding, NotExamined, note, ok
from controlplane.doctor.judging import clocks, gpu, homes
from controlplane.doctor.judging.gpu import Device, GpuSeen
from controlplane.doctor.looking import web
from controlplane.doctor.place import Place
from controlplane.settings.env import CHECKOUT

SOONER = 0.9
SLOWER = 1.2  # loading PyTorch takes longer than asking anybody
MODULE = "engine_agent.tools.examining"


def gpus(place: Place) -> Iterator[Finding]:
    if not place.has_engine:
        raise NotExamined("no engine here (PyTorch is not installed)")
    told = _asked("machine", seconds=place.seconds * SLOWER)
    seen = GpuSeen(
        driver=told["driver"],
        has_device_files=told["has_device_files"],
        torch=told["torch"],
        torch_cuda=told["torch_cuda"],
        why_no_cuda=told["why_no_cuda"],
        devices=[
            Device(one["name"], (one["capability"][0], one["capability"][1]), one["free_bytes"], one["total_bytes"])
            for one in told["devices"]
        ],
        architectures=told["architectures"],
        triton=told["triton"],
    )
    yield from gpu.gpus(seen)
    yield gpu.native(told["native"], has_gpu=bool(seen.devices))


def home_see(place: Place) -> Mapping[str, Any]:
    """It ends before the check that waits for it gives up, and leaves nobody behind."""
    return _asked("home", str(place.home), seconds=place.seconds * SOONER)


def home(told: Mapping[str, Any]) -> Iterator[Finding]:
    yield from homes.home(told)
    if told.get("problem"):
        return
    yield homes.snapshot(told)
    yield from homes.spool(told)


def home_reaches(told: Mapping[str, Any]) -> Iterator[Finding]:
    if told.get("problem"):
        raise NotExamined("there are no credentials here")
    yield homes.control_plane(told)
    yield from homes.broker(told)


def home_clock(told: Mapping[str, Any]) -> Iterator[Finding]:
    ahead = web.date_ahead(told.get("date"), float(told.get("asked_at") or 0.0))
    if ahead is None:
        raise NotExamined("the control plane does not answer")
    yield clocks.apart("the control plane", ahead, exact=False)


def chromium(place: Place) -> Iterator[Finding]:
    """For the browser tests: named, installed, or unpacked before."""
    try:
        found = importlib.import_module("tests.e2e.chromium")
    except ModuleNotFoundError:
        raise NotExamined("the tests are not here") from None
    named = os.environ.get(found.VARIABLE)
    commands: tuple[str, ...] = found.COMMANDS
    where = named or next(filter(None, map(shutil.which, commands)), None)
    if where is not None:
        yield ok("chromium", f"Browser tests use {where}")
        return
    unpacked: Callable[[], Path] = found.default_cache_dir
    if any(unpacked().glob("*")):
        yield ok("chromium", f"Browser tests use Debian's Chromium, unpacked in {unpacked()}")
        return
    told = "No Chromium here: browser tests unpack Debian's, without root, when they first run (about 110 MB)"
    yield note("chromium", told, "sudo apt-get install chromium saves that")


def _asked(*arguments: str, seconds: float) -> Mapping[str, Any]:
    """Raises NotExamined."""
    command = [sys.executable, "-W", "ignore", "-m", MODULE, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotExamined(f"it took longer than {seconds:.1f} s", TAKE_LONGER) from None
    except OSError as error:
        raise NotExamined(f"{sys.executable}: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise NotExamined(said)
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told
