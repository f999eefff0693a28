"""Everything here runs on one thread: tests share a machine, and two busy threads of torch wait for each other."""

from tests.support.torch_threads import one_thread as one_thread
