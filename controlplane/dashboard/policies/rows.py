"""The editor's rows: each field's value in force, origin, input and permitted values. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.fields import (
    INHERITED,
    NO_CAP,
    OWN,
    Typed,
    choices_of,
    first,
    number_text,
    percent,
    value_words,
)
from controlplane.dashboard.policies.form_fields import WORDS, split
from controlplane.dashboard.policies.formats import Format, basis, compared
from controlplane.dashboard.policies.forms import MODELS, Form, ModelPlace
from controlplane.fleet.quality import Served
from engine_agent.contracts.policy_fields import FIELDS, LEVELS, PolicyField
from tenants.bounds import Bounds
from tenants.policy import BUILT_IN, Effective, Values, effective, effective_values
from tenants.preview import AgentPool, shares_banded, shares_resolved

OWN_WORDS = {"fleet": "the fleet’s own", "organisation": "this organisation’s own", "namespace": "this namespace’s own"}
FROM_WORDS = {"fleet": "fleet default", "organisation": "from the organisation"}
MOST_GROUPS = 3


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    is_chosen: bool
    is_closed: bool = False  # outside the bounds of this user
    format: Format | None = None  # with its cost here, where there is room to show it


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    field: PolicyField
    in_force: str
    origin: str
    hints: tuple[str, ...]
    bound: str
    is_locked: bool
    is_own: bool
    is_changed: bool
    becomes: str
    problems: Sequence[str]
    amount: str
    placeholder: str
    units: tuple[Option, ...]
    options: tuple[Option, ...]
    formats: tuple[Option, ...]
    inherits: str

    @property
    def is_wide(self) -> bool:
        """Return whether the choices need lines of their own."""
        return any(option.format for option in self.options)


@dataclass(frozen=True, slots=True)
class ModelRows:
    place: ModelPlace
    is_served: bool
    rows: list[Row]
    more: list[PolicyField]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Ground:
    """The input of all rows. `chain`: the levels' published values, fleet first and this level last."""

    chain: tuple[Values, ...]
    form: Form
    bounds: Bounds | None  # None: no bounds, as for the fleet
    is_operator: bool
    may_edit: bool
    pools: Sequence[AgentPool]
    served: Sequence[Served]
    formats: Mapping[str, Format]
    promised: str = ""  # for operators: how much of each pool is promised in total
    enforcement: Mapping[str | None, Mapping[str, str]] = field(default_factory=dict)  # by model: why not

    @property
    def kind(self) -> str:
        return LEVELS[len(self.chain) - 1]

    @property
    def above(self) -> tuple[Values, ...]:
        return self.chain[:-1]

    @property
    def level(self) -> Values:
        return self.chain[-1]

    @property
    def drafted(self) -> tuple[Values, ...]:
        return (*self.above, self.form.said)


@dataclass(frozen=True, slots=True)
class _Values:
    """Values in general, or of the model at `place`: what this level publishes and drafts, and what results."""

    place: ModelPlace | None
    old: Values
    new: Values
    now: Effective
    then: Values
    inherited: Values
    unenforced: Mapping[str, str]


def _values(context: Ground, section: ModelPlace | None = None) -> _Values:
    """Return the values. A model also inherits what this level drafts in general."""
    model = None if section is None else section.name
    old, new = (
        level_values if section is None else level_values.get(MODELS, {}).get(section.name, {})
        for level_values in (context.level, context.form.said)
    )
    general = ({**context.form.said, MODELS: {}},) if section else ()
    return _Values(
        place=section,
        old=old,
        new=new,
        now=effective(context.chain, model),
        then=effective_values(context.drafted, model),
        inherited=effective_values((*context.above, *general), model),
        unenforced=context.enforcement.get(model, {}),
    )


def _fields(context: Ground) -> list[PolicyField]:
    """Return the fields that this level can set."""
    return [field for field in FIELDS.values() if context.kind in field.levels]


def rows(context: Ground) -> list[Row]:
    values = _values(context)
    return [_row(context, values, field) for field in _fields(context)]


def origin_words(kind: str, origin: str, *, is_built_in: bool = False) -> str:
    """Return a value's origin in the terms of the level on view."""
    if is_built_in:
        return "built in" if kind == "fleet" else FROM_WORDS["fleet"]
    return OWN_WORDS[kind] if origin == kind else FROM_WORDS[origin]


def model_rows(context: Ground) -> list[ModelRows]:
    served = {served_model.model for served_model in context.served}
    return [
        ModelRows(
            place=section,
            is_served=section.name in served,
            rows=[_row(context, values, FIELDS[name]) for name in section.fields],
            more=[field for field in model_fields(context) if field.name not in section.fields],
            problems=context.form.problems.get(section.key, ()),
        )
        for section in context.form.models
        for values in [_values(context, section)]
    ]


def model_fields(context: Ground) -> list[PolicyField]:
    """Return the fields that this person may set for a model."""
    return [field for field in _fields(context) if not _is_locked(context, field.name)]


def _origin(context: Ground, values: _Values, name: str) -> str:
    if values.place is not None:
        return _model_origin(context.kind, values.now.origin[name], values.now.via.get(name, ""))
    is_built_in = not any(name in level_values for level_values in context.chain)
    return origin_words(context.kind, values.now.origin[name], is_built_in=is_built_in)


def _model_origin(kind: str, origin: str, via: str) -> str:
    if origin != "model":
        return "the general value"
    return "said here" if via == kind else f"said for this model by the {via}"


def _row(context: Ground, values: _Values, field: PolicyField) -> Row:
    name, is_of_model = field.name, values.place is not None
    key = name if values.place is None else values.place.at(name)
    typed, problems = context.form.typed, context.form.problems.get(key, ())
    old, new = (level_values.get(name, INHERITED) for level_values in (values.old, values.new))
    inherited, is_changed = values.inherited[name], bool(problems) or not field.is_same(old, new)
    inherits = value_words(name, inherited)
    return Row(
        key=key,
        field=field,
        in_force=value_words(name, values.now.values[name]),
        origin=_origin(context, values, name),
        hints=tuple(
            filter(None, (values.unenforced.get(name), *_hints(context, field, values.then, is_of_model=is_of_model)))
        ),
        bound=_bound_words(context, name),
        is_locked=_is_locked(context, name),
        is_own=old is not INHERITED or new is not INHERITED,
        is_changed=is_changed,
        becomes="" if problems or not is_changed else _becomes(name, new, inherits),
        problems=problems,
        amount=first(typed, key) if field.kind in ("seconds", "share", "number") else "",
        placeholder=_placeholder(field, inherited, first(typed, f"{key}-unit")),
        units=_units(field, key, typed),
        options=_options(context, field, key, typed, old, inherits, is_of_model=is_of_model),
        formats=_formats(context, field, key, typed, old),
        inherits="" if is_of_model else inherits,
    )


def _becomes(name: str, new: Any, inherits: str) -> str:
    return f"becomes {inherits}, inherited" if new is INHERITED else f"becomes {value_words(name, new)}"


def _placeholder(field: PolicyField, inherited: Any, unit: str) -> str:
    """Return the inherited value in the unit selected beside it, if possible."""
    if inherited is None:
        return "no cap"
    match field.kind:
        case "seconds":
            amount, fitting = split(inherited)
            return amount if fitting == unit else duration(inherited)
        case "share":
            return number_text(100 * inherited)
    return number_text(inherited) if field.kind == "number" else ""


def _units(field: PolicyField, key: str, typed: Typed) -> tuple[Option, ...]:
    if field.kind != "seconds":
        return ()
    chosen = first(typed, f"{key}-unit", "min")
    unit_labels = {**WORDS, **({NO_CAP: "no cap"} if field.is_nullable else {})}
    return tuple(Option(value, label, value == chosen) for value, label in unit_labels.items())


def _options(
    context: Ground, field: PolicyField, key: str, typed: Typed, old: Any, inherits: str, *, is_of_model: bool
) -> tuple[Option, ...]:
    if not choices_of(field):
        return ()
    chosen = first(typed, f"{key}-own" if field.kind == "formats" else key)
    inherit = Option("", f"inherit: {inherits}", chosen == "")
    if field.kind == "formats":
        return inherit, Option(OWN, "only these:", chosen == OWN)
    facts = context.formats if field.kind == "format" and not is_of_model else {}
    return inherit, *(
        Option(
            value,
            value,
            chosen == value,
            value != old and not _may_choose(context, field.name, value),
            facts.get(value),
        )
        for value in choices_of(field)
    )


def _formats(context: Ground, field: PolicyField, key: str, typed: Typed, old: Any) -> tuple[Option, ...]:
    if field.kind != "formats":
        return ()
    ticked, before = typed.get(key, ()), old if isinstance(old, list) else ()
    return tuple(
        Option(name, name, name in ticked, name not in before and not _may_choose(context, field.name, name))
        for name in context.formats
    )


def _hints(context: Ground, field: PolicyField, then: Mapping[str, Any], *, is_of_model: bool) -> Iterator[str]:
    if not is_of_model:
        yield field.help
    if field.kind == "share" and then[field.name]:
        words = share_words if context.is_operator else band_words
        yield words(field.name, then, context.pools)
    if field.name == "reserved_share" and context.promised and not is_of_model:
        yield context.promised
    if field.kind == "format" and not is_of_model:
        yield basis(context.served)
        if comparison := compared(context.formats):
            yield f"Two formats go by the name fp8. {comparison}."


def share_words(field: str, values: Mapping[str, Any], pools: Sequence[AgentPool]) -> str:
    """Return a share in whole blocks: "12 % = 30.7 MiB = 31,456 tokens on each of 2 agents, in fp8"."""
    if not pools:
        return "The size is known once an agent serves this."
    groups: dict[tuple[float, int], list[str]] = {}
    for pool in pools:
        for pool_share in shares_resolved({**BUILT_IN, **values}, pool):
            if pool_share.field == field:
                size = pool_share.blocks * pool.block_bytes[values["kv_dtype"]]
                groups.setdefault((size, pool_share.tokens), []).append(pool.agent)
    if not groups:
        return f"No agent here can do {values['kv_dtype']}."
    sorted_groups = sorted(groups.items(), key=lambda group: -len(group[1]))
    sizes_text = "; ".join(
        f"{bytes_text(size)} = {tokens:,} tokens {_where(agents, len(groups))}"
        for (size, tokens), agents in sorted_groups[:MOST_GROUPS]
    )
    others_text = f"; and {len(sorted_groups) - MOST_GROUPS} other sizes" if len(sorted_groups) > MOST_GROUPS else ""
    return f"{percent(values[field])} = {sizes_text}{others_text}, in {values['kv_dtype']}."


def band_words(field: str, values: Mapping[str, Any], pools: Sequence[AgentPool]) -> str:
    """Return a share as a range, for members, who may not see pool sizes: "12 % = 7.7 GiB to 15.4 GiB …"."""
    if not pools:
        return "The size is known once an agent serves this."
    for band in shares_banded({**BUILT_IN, **values}, pools):
        if band.field == field:
            size = f"{bytes_text(band.bytes_least)} to {bytes_text(band.bytes_most)}"
            return f"{percent(values[field])} = {size} on each agent, in {values['kv_dtype']}."
    return f"No agent here can do {values['kv_dtype']}."


def _where(agents: Sequence[str], groups: int) -> str:
    if len(agents) == 1:
        return f"on {agents[0]}"
    return f"on each of {counted(len(agents), 'agent')}" if groups == 1 else f"on {counted(len(agents), 'agent')}"


# Permitted values


def _is_locked(context: Ground, name: str) -> bool:
    if not context.may_edit:
        return True
    return not context.is_operator and context.bounds is not None and getattr(context.bounds, name) is None


def _may_choose(context: Ground, name: str, value: str) -> bool:
    bound = None if context.bounds is None else getattr(context.bounds, name)
    return context.is_operator or bound is None or bound.problem(value) is None


def _bound_words(context: Ground, name: str) -> str:
    """Return what members may choose, or why they may not; empty without limits."""
    if context.bounds is None:
        return ""
    bound = getattr(context.bounds, name)
    if bound is None:
        why = (
            "it takes from what others share"
            if FIELDS[name].takes_from_others
            else "your operator keeps it for the whole fleet alike"
        )
        return "Members may not change it." if context.is_operator else f"Only your operator may change it: {why}."
    range_words = bound_range(name, bound)
    if not range_words:
        return ""
    return (
        f"Members may choose {range_words}." if context.is_operator else f"Your operator lets you choose {range_words}."
    )


def bound_range(name: str, bound: Any) -> str:
    """Format a bound: "1 min to 10 min", "fp8, int8"; empty if it permits every value."""
    if hasattr(bound, "allowed"):
        every = choices_of(FIELDS[name])
        return "" if set(every) <= set(bound.allowed) else ", ".join(bound.allowed) or "none of them"
    if not hasattr(bound, "min"):
        return ""
    minimum, maximum = bound.min, bound.max
    field = FIELDS[name]
    if field.kind == "seconds":
        maximum = None if maximum is not None and field.maximum is not None and maximum >= field.maximum else maximum
        minimum = None if minimum is not None and minimum <= 1 else minimum
    if minimum is None and maximum is None:
        return ""
    words = {"seconds": duration, "share": percent}.get(field.kind, number_text)
    if minimum is None:
        return f"at most {words(maximum)}"
    return f"{words(minimum)} or more" if maximum is None else f"{words(minimum)} to {words(maximum)}"
