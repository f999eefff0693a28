"""The calculator's form, parsed from the query string. Numbers use the units people type. Pure.

It asks the same as `POST /calculator/kv` and `luminet calc`. Each error appears beside its field and quotes the value.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.http import QueryDict

from controlplane.dashboard.frame.forms import WordField
from kernels.calculator.accelerators import ACCELERATORS, GB
from kernels.calculator.asked import asked
from kernels.calculator.question import WEIGHT_BITS, Question
from kernels.errors import InvalidArgument
from kernels.formats import OFFERED
from kernels.models.presets import PRESETS

DEMO, OWN, CUSTOM = "demo", "own", "custom"
GIB: Final = 2**30
DEMO_CONFIG: Final[Mapping[str, Any]] = {  # the relevant part of engine_agent/demo/model/config.json
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_size": 256,
    "intermediate_size": 704,
    "vocab_size": 2048,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
DEMO_MODEL: Final = "luminet-demo"
MODELS = [
    (DEMO, "The demo model"),
    *((slug, preset.name) for slug, preset in PRESETS.items()),
    (OWN, "Another, by its numbers"),
]
MACHINES = [
    ("", "None: bytes alone"),
    *((slug, accelerator.name) for slug, accelerator in ACCELERATORS.items()),
    (CUSTOM, "Another, by its numbers"),
]
SHAPE = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
}
FIELDS = {
    **{config_key: field_name for field_name, config_key in SHAPE.items()},
    "model": "model",
    "context_tokens": "context",
    "concurrency": "requests",
    "shared_prefix_tokens": "shared",
    "tensor_parallel": "gpus",
    "accelerator": "accelerator",
    "memory_bytes": "memory",
    "bandwidth_bytes_per_second": "bandwidth",
    "parameters": "parameters",
    "active_parameters": "parameters",
    "weights_dtype": "weights",
    "reserve_bytes": "reserve",
    "memory_utilisation": "share",
    "kv_dtypes": "kv_dtype",
}
_WHOLE = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?")
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_ARGUMENT = re.compile(
    rf"\b({'|'.join(sorted((field_name for field_name in FIELDS if '_' in field_name), key=len, reverse=True))})\b"
)


class NumberField(forms.CharField):
    """A number as people type it: 131,072 and 131 072 are the same. Whole or decimal."""

    def __init__(self, *, is_whole: bool = True, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "numeric" if is_whole else "decimal", "autocomplete": "off"})
        super().__init__(widget=widget, max_length=30, **kwargs)
        self.is_whole = is_whole

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value) or "")
        if not text:
            return None
        plain = re.sub(r"[,_\s]", "", text)
        if not (_WHOLE if self.is_whole else _DECIMAL).fullmatch(plain):
            expected = "a whole number, as 8192" if self.is_whole else "a number, as 80 or 0.5"
            raise forms.ValidationError(f"{self.label}: “{text}” is not {expected}.")
        return int(plain) if self.is_whole else Decimal(plain)


class ParametersField(forms.CharField):
    """A number of parameters: 8.03B, 70b or 8030000000."""

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value) or "")
        if not text:
            return None
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmbt]?)", re.sub(r"[,_]", "", text).lower())
        if not match:
            raise forms.ValidationError(f"{self.label}: “{text}” is not a number, as 8.03B or 8030000000.")
        return int(Decimal(match[1]) * _SIZES[match[2]])


class CalculatorForm(forms.Form):
    """The calculator's form. Every field has a default, so the URL may omit all of them."""

    model = WordField(label="Model", choices=MODELS, initial=DEMO)
    layers = NumberField(label="Layers", required=False)
    heads = NumberField(label="Query heads", required=False)
    kv_heads = NumberField(label="KV heads", required=False)
    head_size = NumberField(label="Head size", required=False)
    parameters = ParametersField(
        label="Parameters", required=False, max_length=30, help_text="As 8.03B. Needed for what fits."
    )
    context = NumberField(
        label="Context, tokens a request", required=False, help_text="Empty: 8,192, or what the model was made for."
    )
    requests = NumberField(label="Requests at once", required=False, initial="1")
    shared = NumberField(
        label="Shared prefix, tokens", required=False, initial="0", help_text="Of each context; held once for all."
    )
    windows = WordField(
        label="Layers with a window",
        choices=[("heed", "let go of older tokens"), ("ignore", "keep every token")],
        initial="heed",
    )
    accelerator = WordField(label="Accelerator", choices=MACHINES, required=False, initial="")
    memory = NumberField(label="Its memory, GB", is_whole=False, required=False, help_text="10⁹ bytes, each.")
    bandwidth = NumberField(label="Its bandwidth, GB/s", is_whole=False, required=False, help_text="Of that memory.")
    gpus = NumberField(label="Tensor parallel, GPUs", required=False, initial="1")
    weights = WordField(
        label="Weights as",
        choices=[("", "as published"), *((name, name) for name in WEIGHT_BITS)],
        required=False,
        initial="",
    )
    share = NumberField(
        label="Memory used, %",
        is_whole=False,
        required=False,
        initial="92",
        help_text="By weights and cache together.",
    )
    reserve = NumberField(
        label="Reserve, GiB", is_whole=False, required=False, initial="1", help_text="For activations, on each."
    )
    kv_dtype = forms.MultipleChoiceField(
        label="KV formats",
        choices=[(name, name) for name in OFFERED],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        initial=list(OFFERED),
        error_messages={"invalid_choice": f"KV formats: “%(value)s” is none of {', '.join(OFFERED)}."},
    )

    def clean_share(self) -> Decimal | None:
        share: Decimal | None = self.cleaned_data["share"]
        if share is not None and not 0 < share <= 100:
            raise forms.ValidationError(f"Memory used, %: “{self.data['share']}” is not above 0 and up to 100.")
        return share

    def question(self) -> Question | None:
        """Return the question, or None after adding the errors to the form."""
        try:
            return asked(**self.body()) if self.is_valid() else None
        except InvalidArgument as error:
            self.refuse(error)
            return None

    def body(self) -> dict[str, Any]:
        """Return the body of `POST /calculator/kv` that gives the same answer."""
        cleaned = self.cleaned_data
        arguments: dict[str, Any] = {
            "kv_dtypes": None if set(cleaned["kv_dtype"]) in (set(), {*OFFERED}) else cleaned["kv_dtype"],
            "context_tokens": cleaned["context"],
            "concurrency": cleaned["requests"],
            "shared_prefix_tokens": cleaned["shared"],
            "tensor_parallel": cleaned["gpus"],
            "respect_windows": None if cleaned["windows"] == "heed" else False,
            **_model(cleaned),
            **_machine(cleaned),
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def refuse(self, error: InvalidArgument) -> None:
        """Add the error with the page's labels; an argument without a field keeps its name."""
        first, _, last = error.argument.partition(".")
        field = FIELDS.get(last if first == "config" else first)
        if field is None:
            self.add_error(None, f"{error}.")
            return
        label = self.fields[field].label
        expected = _ARGUMENT.sub(lambda match: str(self.fields[FIELDS[match[1]]].label), error.wanted)
        typed = self.data.get(field)
        message = f"“{typed}” is not {expected}" if typed else f"nothing is given, and it is to be {expected}"
        self.add_error(field, f"{label}: {message}.")


def calculator_form(query: QueryDict) -> CalculatorForm:
    """Return the form for the URL; omitted fields take their defaults."""
    names = CalculatorForm.base_fields
    if not any(name in query for name in names):
        return CalculatorForm(_usual())
    form_values = _usual()
    form_values.update({name: query.get(name, "") for name in names if name in query and name != "kv_dtype"})
    if "kv_dtype" in query:
        form_values["kv_dtype"] = query.getlist("kv_dtype")
    return CalculatorForm(form_values)


def model_names(form: CalculatorForm) -> Sequence[str]:
    """Return the names under which engines may serve the model."""
    model = form.cleaned_data.get("model", "")
    if model == DEMO:
        return [DEMO_MODEL]
    return [model, PRESETS[model].repository] if model in PRESETS else []


def _usual() -> dict[str, Any]:
    return {name: "" if field.initial is None else field.initial for name, field in CalculatorForm.base_fields.items()}


def _model(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    if cleaned["model"] == DEMO:
        return {"config": dict(DEMO_CONFIG), "parameters": cleaned["parameters"]}
    if cleaned["model"] != OWN:
        return {"model": cleaned["model"], "parameters": cleaned["parameters"]}
    shape = {
        config_key: cleaned[field_name] for field_name, config_key in SHAPE.items() if cleaned[field_name] is not None
    }
    return {"config": {"model_type": "llama", **shape}, "parameters": cleaned["parameters"]}


def _machine(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments on accelerator and memory; none without an accelerator."""
    name = cleaned["accelerator"]
    if not name:
        return {}
    numbers = {
        "memory_bytes": _bytes(cleaned["memory"], GB),
        "bandwidth_bytes_per_second": _speed(cleaned["bandwidth"]),
    }
    if name == CUSTOM and not any(numbers.values()):
        raise InvalidArgument("memory_bytes", None, "there, though another accelerator is chosen")
    return {
        **(numbers if name == CUSTOM else {"accelerator": name}),
        "memory_utilisation": None if cleaned["share"] is None else float(cleaned["share"] / 100),
        "reserve_bytes": _bytes(cleaned["reserve"], GIB),
        "weights_dtype": cleaned["weights"] or None,
    }


def _bytes(number: Decimal | None, unit: int) -> int | None:
    return None if number is None else int(number * unit)


def _speed(number: Decimal | None) -> float | None:
    return None if number is None else float(number * GB)
