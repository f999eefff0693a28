"""What a process of the data plane says on its own: its own words, and of others' only what went wrong."""

import subprocess
import sys

import pytest

SAYING = """
import logging
from engine_agent.process.logs import log_to_stderr
log_to_stderr(is_json=True)
logging.getLogger("{name}").info("chatter")
logging.getLogger("{name}").warning("trouble")
"""
CHATTY = ["celery.worker.strategy", "celery.app.trace", "celery.worker.consumer.connection", "kombu", "uvicorn.error"]


@pytest.mark.parametrize("name", CHATTY)
def test_of_what_libraries_say_only_trouble_is_shown(name: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAYING.format(name=name)], capture_output=True, text=True, check=True
    ).stderr
    assert "trouble" in said
    assert "chatter" not in said


def test_what_it_says_itself_is_shown() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAYING.format(name="luminet.sidecar")], capture_output=True, text=True, check=True
    ).stderr
    assert "chatter" in said
