"""Runs database work of an event loop in threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(threads: ThreadPoolExecutor, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the work in one of these threads, which then returns its connection to the pool."""
    return await asyncio.get_running_loop().run_in_executor(threads, partial(_with_connection, work, *args, **kwargs))


def _with_connection(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return work(*args, **kwargs)
    finally:
        connection.close()
