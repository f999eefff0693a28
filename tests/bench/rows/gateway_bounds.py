"""G4: what one gateway process bears: very many tenants and known blocks, and very many streams that say little."""

from tests.bench import Bench, row
from tests.bench.gateway_memory import gateway_memory
from tests.bench.gateway_streams import gateway_streams


@row(
    "G4",
    title="Gateway: memory with 10,000 keys, 10,000 namespaces, 10⁶ blocks; 2,000 idle streams",
    target="≤ 200 MB · every stream holds",
)
def gateway_bounds(bench: Bench) -> None:
    gateway_memory(bench)
    gateway_streams(bench)
