"""The ASGI application as a server runs it: loaded, then excluded from garbage collection."""

from controlplane.asgi import application as application
from controlplane.common.collector import collect_less_often, freeze_what_is_loaded
from engine_agent.process.allocator import allocator_bound

allocator_bound()
freeze_what_is_loaded()
collect_less_often()
