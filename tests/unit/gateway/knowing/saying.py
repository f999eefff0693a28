"""What the tests of this folder have in common: the demo model's bundle, a namespace, and bodies."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from engine_agent.demo import model as demo
from engine_agent.gateway.knowing.bundles import Loaded
from engine_agent.gateway.knowing.chains import Ground
from engine_agent.gateway.knowing.cutting import Cutter
from engine_agent.gateway.knowing.knowing import INLINE_BYTES
from engine_agent.gateway.knowing.prompts import CHAT, Asking
from engine_agent.gateway.tables import Formats, Namespace, Rules
from engine_agent.prompts.bundle import Bundle, bundle_encode, bundle_name

FOLDER = Path(demo.__path__[0])
NAMESPACE = Namespace("11", "default", 1, Rules(Formats("bf16"), {}), epoch=3, key=b"k" * 32)


@cache
def bundle_bytes() -> bytes:
    return bundle_encode(Bundle.from_folder(FOLDER))


@cache
def loaded(least_piece: int = 64) -> Loaded:
    """In small pieces, so that short texts are several."""
    bundle = Bundle.from_folder(FOLDER)
    return Loaded(
        bundle_name(bundle_bytes()), bundle, Cutter(bundle.tokenizer, bundle.special, least_piece=least_piece)
    )


def ground(kv_format: str = "bf16", *, block_tokens: int = 16) -> Ground:
    return Ground(loaded().name, "r1", kv_format, "", block_tokens)


def asking(body: dict[str, Any], path: str = CHAT, *, salt: bytes = b"", **kind: Any) -> Asking:
    where = ground(**kind)
    is_light = len(json.dumps(body)) <= INLINE_BYTES
    return Asking(body, is_light, path, "demo", where.kv_format, loaded(), {where: where.root(NAMESPACE, salt)})


def chat(*texts: str) -> dict[str, Any]:
    """Told in turns, the first of them the system's."""
    roles = ["system", *("user", "assistant") * len(texts)]
    return {"model": "demo", "messages": [{"role": roles[i], "content": text} for i, text in enumerate(texts)]}
