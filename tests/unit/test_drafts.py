"""What is asked of a draft: the shortcuts find what looking at every model and every value would."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenants.drafts import Draft, promises_more
from tenants.policy import Values, contradictions, effective_values, models_named
from tenants.shares import PROMISES, is_promised_something, promised

SHARES = st.sampled_from([0.0, 0.1, 0.5, 1.0])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "reserved_share": SHARES,
        "pin_share": SHARES,
        "limit_share": SHARES,
        "ttl_seconds": st.sampled_from([60, 600]),
        "max_age_seconds": st.sampled_from([100, 1000, None]),
        "weight": st.sampled_from([1.0, 2.0]),
    },
)
LEVEL = st.builds(
    lambda fields, models: {**fields, **({"models": models} if models else {})},
    FIELDS,
    st.dictionaries(st.sampled_from(["a", "b", "c"]), FIELDS, max_size=3),
)
CHAIN = st.tuples(LEVEL, LEVEL, LEVEL)


def every(chain: tuple[Values, ...]) -> list[tuple[str | None, dict[str, Any]]]:
    return [(model, effective_values(chain, model)) for model in (None, "other", *models_named(chain))]


@given(CHAIN)
@settings(max_examples=200, deadline=None)
def test_no_contradiction_in_force_goes_untold(chain: tuple[Values, ...]) -> None:
    told = {one.field for one in contradictions(chain)}
    for model, values in every(chain):
        place = "policy" if model in (None, "other") else f"policy.models.{model}"
        if values["max_age_seconds"] is not None and values["ttl_seconds"] > values["max_age_seconds"]:
            assert told & {f"{place}.ttl_seconds", "policy.ttl_seconds"}
        for share in PROMISES:
            if values[share] > values["limit_share"]:
                assert told & {f"{place}.{share}", f"policy.{share}"}


@given(CHAIN)
@settings(max_examples=100, deadline=None)
def test_whoever_holds_something_for_any_model_is_promised_something(chain: tuple[Values, ...]) -> None:
    assert is_promised_something(chain) is any(promised(values) > 0 for _, values in every(chain))


@given(CHAIN, LEVEL)
@settings(max_examples=200, deadline=None)
def test_a_namespace_that_gets_more_for_any_model_is_noticed(chain: tuple[Values, ...], after: Values) -> None:
    *above, before = chain
    draft = Draft(tuple(above), before, after)
    models = (None, *models_named((*chain, after)))
    assert promises_more(draft) is any(
        effective_values((*above, after), model)[share] > effective_values(chain, model)[share]
        for model in models
        for share in PROMISES
    )


@given(CHAIN, LEVEL)
@settings(max_examples=200, deadline=None)
def test_a_level_above_under_which_somebody_gets_more_is_noticed(chain: tuple[Values, ...], after: Values) -> None:
    fleet, organisation, namespace = chain
    draft = Draft((fleet,), organisation, after)
    models = (None, *models_named((*chain, after)))
    gets_more = any(
        effective_values((fleet, after, namespace), model)[share] > effective_values(chain, model)[share]
        for model in models
        for share in PROMISES
    )
    assert promises_more(draft) or not gets_more
