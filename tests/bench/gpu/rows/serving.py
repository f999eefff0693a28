"""E2 and H3 on a GPU: what a cache hit is worth to those who wait for the first token."""

import importlib.util

from tests.bench import Bench
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import here, where

NEEDED = ("aiohttp", "cryptography", "httptools", "pydantic", "safetensors", "starlette", "tokenizers", "uvicorn")


@row("E2", title="Time to first token of a full hit ÷ a cold prompt, 4,096 tokens, 8 layers × 512, on the GPU")
def hits(bench: Bench) -> None:
    _skip_without_server(bench)
    from tests.bench.gpu.serving import record_hits

    record_hits(bench, here())
    bench.note(where())


@row(
    "H3",
    title="What prefix caching saves on a template of 6,000 tokens, demo model, on the GPU",
    target="measured and shown",
    beside="the same engine with prompts that begin like no other, alternating",
)
def savings(bench: Bench) -> None:
    _skip_without_server(bench)
    from tests.bench.gpu.serving import record_savings_on

    record_savings_on(bench, here())
    bench.note(where())


def _skip_without_server(bench: Bench) -> None:
    """A Python that came with torch may lack what serves HTTP. The kernels' rows do without."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        bench.skip(f"this Python lacks {', '.join(missing)}: make bench-gpu INSTALL=1 installs them")
