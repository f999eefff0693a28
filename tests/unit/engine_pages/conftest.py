"""One thread for torch, beside the host tier's own: tests share a machine."""

from tests.support.torch_threads import one_thread as one_thread
