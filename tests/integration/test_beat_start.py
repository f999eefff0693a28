"""What beat loads when it starts. The worker starts the same way."""

import os
import subprocess
import sys

from controlplane.settings.env import CHECKOUT

PROGRAM = """
import sys
from celery.apps.beat import Beat
from controlplane.serve import run_beat

Beat.start_scheduler = lambda self: print(*sorted(sys.modules))
run_beat()
"""


def test_beat_loads_tasks_and_no_page_or_route() -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings.django"}
    command = (sys.executable, "-c", PROGRAM)
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "controlplane.rollouts.tasks" in loaded
    assert not loaded & {"controlplane.urls", "controlplane.api.api", "controlplane.dashboard.home.views"}
