"""`/v1/models`: the models that reachable engines serve, with the KV formats that requests may choose."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine, ServedModel, Tables

Model = Mapping[str, Any]


def models_served(tables: Tables, load_of: Callable[[str], Standing]) -> dict[str, Model]:
    """Return the models by name."""
    reachable = _reachable(tables, load_of)
    return {
        name: _model(
            name, [engine.models[name] for engine in reachable if name in engine.models], tables.refused.get(name, {})
        )
        for name in _names(reachable)
    }


def names_served(tables: Tables, load_of: Callable[[str], Standing]) -> list[str]:
    return _names(_reachable(tables, load_of))


def model_list(models: Mapping[str, Model]) -> dict[str, Any]:
    return {"object": "list", "data": list(models.values())}


def _reachable(tables: Tables, load_of: Callable[[str], Standing]) -> list[Engine]:
    return [engine for engine in tables.engines.values() if engine.is_open and load_of(engine.agent).is_reachable]


def _names(engines: Iterable[Engine]) -> list[str]:
    return sorted({name for engine in engines for name in engine.models})


def _model(name: str, served: Iterable[ServedModel], refused: Mapping[str, str]) -> Model:
    """Describe a model. If engines differ: the formats that any supports, and the context that all support."""
    served_models = list(served)
    kv_dtypes = dict.fromkeys(
        kv_dtype for served_model in served_models for kv_dtype in served_model.kv_dtypes if kv_dtype not in refused
    )
    return {
        "id": name,
        "object": "model",
        "created": max(served_model.created for served_model in served_models),
        "owned_by": "luminet",
        "max_model_len": min(served_model.context_tokens for served_model in served_models),
        "kv_cache_dtypes": list(kv_dtypes),
    }
