"""A process with many threads keeps two arenas, and gives large blocks back. In processes of their own."""

import ctypes
import subprocess
import sys

import pytest

from engine_agent.process.allocator import ARENAS

THREADS = 12
LARGE_MB = 24

# Each thread allocates while all others live, which is what glibc makes an arena for. Then large blocks come and go
# twice, because glibc's default changes with the first; a small one behind them keeps the heap from shrinking.
PROGRAM = f"""
import ctypes, sys, threading
from engine_agent.process.allocator import allocator_bound
if sys.argv[1] == "bound":
    allocator_bound()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.fopen.restype, libc.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes, libc.fopen.argtypes = [ctypes.c_void_p], [ctypes.c_char_p, ctypes.c_char_p]
barrier = threading.Barrier({THREADS})
def allocate():
    barrier.wait()
    held = bytes(100_000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for thread in threads: thread.start()
for thread in threads: thread.join()
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20
before = resident()
libc.free(libc.malloc({LARGE_MB} << 20))
block = libc.malloc({LARGE_MB - 4} << 20)
ctypes.memset(block, 1, {LARGE_MB - 4} << 20)
behind = libc.malloc(200_000)
libc.free(block)
print(open(sys.argv[2]).read().count("<heap nr="), resident() - before)
"""

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc's allocator")


def arenas_and_kept_mb(how: str, file: str) -> tuple[int, int]:
    said = subprocess.run((sys.executable, "-c", PROGRAM, how, file), capture_output=True, check=True, text=True).stdout
    arenas, kept = said.split()
    return int(arenas), int(kept)


@glibc
def test_threads_share_two_arenas(tmp_path: object) -> None:
    arenas, kept_mb = arenas_and_kept_mb("bound", f"{tmp_path}/info")
    assert arenas <= ARENAS
    assert kept_mb < LARGE_MB // 2, "a large block that was freed is still here"


@glibc
def test_without_the_bound_more_is_kept(tmp_path: object) -> None:
    """Or the test above could not fail."""
    arenas, kept_mb = arenas_and_kept_mb("free", f"{tmp_path}/info")
    assert arenas > ARENAS
    assert kept_mb > LARGE_MB // 2
