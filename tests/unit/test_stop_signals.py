import asyncio
import os
import signal

import pytest

from engine_agent.process.stopping import StopSignals, first


async def test_second_signal_ends_the_process_at_once() -> None:
    signals = StopSignals()
    signals.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    await signals.stopping.wait()
    assert (signals.now.is_set(), signals.exit_status) == (False, 0)
    os.kill(os.getpid(), signal.SIGINT)
    await signals.now.wait()
    assert signals.exit_status == 128 + signal.SIGINT


async def test_failed_task_ends_the_wait() -> None:
    async def fails() -> None:
        raise ValueError("the port is taken")

    with pytest.raises(ValueError, match="the port is taken"):
        await first(asyncio.Event().wait(), [asyncio.create_task(fails())])
