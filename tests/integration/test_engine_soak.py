"""A quick turn of `tests/soak.py`; minutes of it are for whoever runs `python -m tests.soak`."""

from tests.soak import Report, in_own_process

REQUESTS = 300
MOST_MIB = 32  # logs that fill up to their bounds, and what an allocator keeps for later


async def test_after_everything_at_once_nothing_is_left_over() -> None:
    report: Report = await in_own_process(seed=7, requests=REQUESTS, host_mib=1)
    assert report.problems == []
    assert report.requests >= REQUESTS
    assert report.preemptions > 0
    assert min(report.outcomes[name] for name in ("know", "read_all", "leave_early", "leave_waiting", "absurd")) > 0
    assert min(report.changes[name] for name in ("policy", "purge", "remove", "pin", "rejected")) > 0
    assert report.grown_mib < MOST_MIB
