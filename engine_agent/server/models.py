"""`/v1/models`: the one model of this engine."""

from typing import Any

from engine_agent.backends.base import ModelCard


def model_object(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": card.created,
        "owned_by": "luminet",
        "max_model_len": card.context_tokens,
        "kv_cache_dtypes": list(card.kv_dtypes),
    }


def model_list(card: ModelCard) -> dict[str, Any]:
    return {"object": "list", "data": [model_object(card)]}
