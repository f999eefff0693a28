"""The ASGI application as a server runs it: loaded, and then with a collector that looks for circles less often.

A batch of reports is decoded into a hundred thousand small things, none of them in a circle. To look for circles among
them, and among all that was loaded at the start, again and again, took a third of the time of taking them in.
"""

import gc
from typing import Final

from controlplane.asgi import application as application
from engine_agent.allocator import allocator_bound

ALLOCATIONS: Final = 50_000  # between two looks at what is young; Python's own number is 700

allocator_bound()
gc.collect()
gc.freeze()
gc.set_threshold(ALLOCATIONS, 10, 10)
