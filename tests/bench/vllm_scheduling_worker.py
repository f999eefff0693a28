"""One side of row V1: `python -m tests.bench.vllm_scheduling_worker ours|stock`, in vLLM's virtualenv."""

import platform
import sys
from typing import Any

from tests.bench.answers import serve
from tests.bench.cache_rounds import settle_garbage
from tests.bench.vllm_sides import Bookkeeping


def prepared() -> tuple[dict[str, Any], Any]:
    side = Bookkeeping(sys.argv[1])
    return {"python": platform.python_version(), "gc": settle_garbage()}, side.answer


if __name__ == "__main__":
    serve(prepared)
