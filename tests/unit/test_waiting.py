import subprocess
import sys

import pytest

from tests.support.waiting import WaitTimeout, wait_until, wait_until_async


def test_result_of_the_check_is_returned() -> None:
    results = iter([None, 0, "ready"])
    assert wait_until(lambda: next(results)) == "ready"


def test_timeout_quotes_the_condition_and_details() -> None:
    with pytest.raises(WaitTimeout, match=r'waited 0 s for .*lambda: len\(""\) > 1.*; last result: False\nno text'):
        wait_until(lambda: len("") > 1, seconds=0, details=lambda: "no text")


def test_ended_process_ends_the_wait() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        with pytest.raises(WaitTimeout, match="a process ended while the test waited for its port"):
            wait_until(lambda: False, "its port", process)


async def test_asynchronous_timeout_names_the_goal() -> None:
    with pytest.raises(WaitTimeout, match="waited 0 s for a second connection"):
        await wait_until_async(lambda: False, "a second connection", seconds=0)
