"""Facts of the data plane, collected by a separate process of `engine_agent`: the control plane imports no engine.

A separate process can also be ended when its time is over, whatever it waits for.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from controlplane.doctor.finding import TAKE_LONGER, NotExamined
from controlplane.settings.env import CHECKOUT

MODULE = "engine_agent.tools.examining"


def facts(*arguments: str, seconds: float) -> Mapping[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", MODULE, *arguments]
    try:
        completed = subprocess.run(
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
    if completed.returncode != 0:
        raise NotExamined((completed.stderr.strip().splitlines() or [f"status {completed.returncode}"])[-1])
    reported: Mapping[str, Any] = json.loads(completed.stdout)
    return reported
