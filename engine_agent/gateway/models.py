"""`/v1/models`: the models that reachable engines serve, with the KV formats that requests may choose."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine, ServedModel, Tables

Model = Mapping[str, Any]


def models_served(tables: Tables, standing: Callable[[str], Standing]) -> dict[str, Model]:
    """Return the models by name."""
    reachable = _reachable(tables, standing)
    return {
        name: _model(name, [one.models[name] for one in reachable if name in one.models], tables.refused.get(name, {}))
        for name in _names(reachable)
    }


def names_served(tables: Tables, standing: Callable[[str], Standing]) -> list[str]:
    return _names(_reachable(tables, standing))


def model_list(models: Mapping[str, Model]) -> dict[str, Any]:
    return {"object": "list", "data": list(models.values())}


def _reachable(tables: Tables, standing: Callable[[str], Standing]) -> list[Engine]:
    return [one for one in tables.engines.values() if one.is_open and standing(one.agent).is_reachable]


def _names(engines: Iterable[Engine]) -> list[str]:
    return sorted({name for one in engines for name in one.models})


def _model(name: str, served: Iterable[ServedModel], refused: Mapping[str, str]) -> Model:
    """Describe a model. If engines differ: the formats that any supports, and the context that all support."""
    ones = list(served)
    kv_dtypes = dict.fromkeys(kv_dtype for one in ones for kv_dtype in one.kv_dtypes if kv_dtype not in refused)
    return {
        "id": name,
        "object": "model",
        "created": max(one.created for one in ones),
        "owned_by": "luminet",
        "max_model_len": min(one.context_tokens for one in ones),
        "kv_cache_dtypes": list(kv_dtypes),
    }
