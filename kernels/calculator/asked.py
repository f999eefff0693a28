"""A question in the words people and programs use: names of models, formats and accelerators, or a config instead."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kernels.calculator.accelerators import Accelerator, accelerator_named
from kernels.calculator.answer import Answer
from kernels.calculator.held import can_store
from kernels.calculator.question import Question
from kernels.formats import COMPARED, KV_FORMATS, KvFormat
from kernels.models.configs import read_config
from kernels.models.presets import preset_named, preset_shape
from kernels.shapes import ModelShape, Parameters, refused

ALL = "all"
ALL_FORMATS: Mapping[str, KvFormat] = {**KV_FORMATS, **COMPARED}


def asked(
    *,
    model: object = None,
    config: object = None,
    kv_dtypes: Sequence[object] | None = None,
    accelerator: object = None,
    memory_bytes: object = None,
    bandwidth_bytes_per_second: object = None,
    parameters: object = None,
    active_parameters: object = None,
    **numbers: Any,
) -> Question:
    """`numbers` are fields of a Question; one that is None is left at its default. Raises InvalidArgument."""
    shape = _sized(_shape(model, config), parameters, active_parameters)
    formats, notes = _formats(kv_dtypes, shape)
    given = {name: value for name, value in numbers.items() if value is not None}
    on = _accelerator(accelerator, memory_bytes, bandwidth_bytes_per_second)
    return Question(shape, formats, accelerator=on, notes=notes, **given)


def document(shape: ModelShape, answer: Answer) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {"model": described(shape), **_lists(asdict(answer))}


def described(shape: ModelShape) -> dict[str, Any]:
    """A model, as JSON has it. Where layers differ, heads and sizes are the largest; `layers` has each kind's own."""
    sizes = shape.parameters
    return {
        "name": shape.name,
        "source": shape.source,
        "attention": shape.attention,
        "layer_count": shape.layer_count,
        "query_heads": shape.query_heads,
        "kv_heads": shape.kv_heads,
        "key_size": shape.key_size,
        "value_size": shape.value_size,
        "hidden_size": shape.hidden_size,
        "context_tokens": shape.context_tokens,
        "parameters": None if sizes is None else sizes.total,
        "active_parameters": None if sizes is None else sizes.active,
        "parameters_source": None if sizes is None else sizes.source,
        "weights_dtype": shape.weights_dtype,
        "layers": [asdict(one) for one in shape.layers],
    }


def _lists(value: Any) -> Any:
    """With lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {name: _lists(one) for name, one in value.items()}
    return [_lists(one) for one in value] if isinstance(value, tuple) else value


def _shape(model: object, config: object) -> ModelShape:
    if (model is None) == (config is None):
        given = "neither" if model is None else "both"
        raise refused("model", model, f"enough: give either a model's name or a config, not {given}")
    return read_config(config) if model is None else preset_shape(preset_named(model).slug)


def _accelerator(name: object, memory: object, bandwidth: object) -> Accelerator | None:
    """One with a name, or any other by both its numbers."""
    numbers = {"memory_bytes": memory, "bandwidth_bytes_per_second": bandwidth}
    given = [one for one, value in numbers.items() if value is not None]
    if name is not None and given:
        raise refused("accelerator", name, f"the only one: {given[0]} is of another")
    if not given:
        return None if name is None else accelerator_named(name)
    if missing := [one for one in numbers if one not in given]:
        raise refused(missing[0], None, f"there, though {given[0]} is")
    return Accelerator("custom", memory, bandwidth)  # type: ignore[arg-type]  # checked there


def _sized(shape: ModelShape, total: object, active: object) -> ModelShape:
    """With the numbers of parameters that were given in place of those known."""
    if total is None and active is None:
        return shape
    known = shape.parameters
    if total is None and known is None:
        raise refused("parameters", None, "there, though active_parameters is")
    whole = known.total if total is None and known else total
    read = active if active is not None else whole
    experts = (known.experts, known.experts_per_token) if known else (0, 0)
    return replace(shape, parameters=Parameters(whole, read, "given", *experts))  # type: ignore[arg-type]  # checked there


def _formats(names: Sequence[object] | None, shape: ModelShape) -> tuple[tuple[KvFormat, ...], tuple[str, ...]]:
    """Those named; nothing named: those policies may name; `all`: those of others, too."""
    if names is not None and list(names) != [ALL]:
        if not names:
            raise refused("kv_dtypes", list(names), "at least one")
        return tuple(dict.fromkeys(_named(at, one) for at, one in enumerate(names))), ()
    wanted = [one for one in ALL_FORMATS.values() if names is not None or one.is_offered]
    left_out = [one.name for one in wanted if not can_store(one, shape)]
    sizes = f"{shape.key_size} and {shape.value_size} elements"
    notes = (f"Vectors of {sizes} do not go into whole groups of {', '.join(left_out)}: left out.",) if left_out else ()
    return tuple(one for one in wanted if one.name not in left_out), notes


def _named(at: int, name: object) -> KvFormat:
    found = ALL_FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise refused(f"kv_dtypes.{at}", name, f"one of {', '.join(ALL_FORMATS)}, or {ALL} alone")
    return found
