"""Sentences that sum up a policy. Pure."""

from controlplane.dashboard.frame.words import counted, duration
from engine_agent.contracts.policy_fields import FIELDS
from tenants.policy import Values

STANDING = {
    "fleet": "Nothing is published for the fleet yet: these are the values built in",
    "organisation": "Nothing is published for this organisation yet: all of it is the fleet’s",
    "namespace": "Nothing is published for this namespace yet: all of it is inherited",
}


def headline(values: Values, kind: str, name: str) -> str:
    """Return "chat keeps blocks for 10 min after their last use, as fp8"."""
    slug = name.rpartition("/")[2]
    keeps, nothing = {
        "fleet": ("Where nobody says otherwise, blocks live", "Where nobody says otherwise, nothing is cached"),
        "organisation": (f"By default, blocks of {slug} live", f"By default, nothing of {slug} is cached"),
        "namespace": (f"{slug} keeps blocks for", f"{slug} caches nothing"),
    }[kind]
    if not values["prefix_caching"]:
        return nothing
    since = "after their last use" if values["ttl_mode"] == "sliding" else "from when they were made"
    return f"{keeps} {duration(values['ttl_seconds'])} {since}, as {values['kv_dtype']}"


def standing(kind: str, revision: int) -> str:
    """Return the revision in force, or that none is published."""
    return f"Revision {revision}" if revision else STANDING[kind]


def models_words(number: int) -> str:
    if not number:
        return "No model has values of its own"
    own_text = "has values of its own" if number == 1 else "have values of their own"
    return f"{counted(number, 'model')} {own_text}"


def own_words(values: Values, kind: str) -> str:
    """Return "3 of 11 values are this namespace’s own"."""
    own, rest = sum(name in values for name in FIELDS), "built in" if kind == "fleet" else "inherited"
    if not own:
        return f"All {len(FIELDS)} values are {rest}"
    owner_words = {
        "fleet": "the fleet’s own",
        "organisation": "this organisation’s own",
        "namespace": "this namespace’s own",
    }
    return f"{own} of {len(FIELDS)} values {'is' if own == 1 else 'are'} {owner_words[kind]}, the others are {rest}"
