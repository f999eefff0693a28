"""Send the same long prompt twice and compare the counts of engine, header, usage body and database."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from controlplane.analytics.selectors import Scope, database_now, totals_counts
from controlplane.analytics.windows import Window, floored
from controlplane.dashboard.experiments.asking import Answer
from controlplane.dashboard.experiments.sent import hit_ratio, speed_words
from controlplane.demo.experiments.engines import Counted, engines_counted
from controlplane.demo.experiments.kinds.speaking import FIRST, long_prompt, speaking
from controlplane.demo.experiments.trials import About, Step
from tenants.actor import Actor
from tenants.models import Namespace

ABOUT: Final = About(
    "hit",
    "Hit: the same 6,000 tokens twice",
    "A prompt that was never sent before goes through the gateway as Globex, and then once more.",
    "The key that was made for it is revoked; its blocks expire like any others.",
    "about 15 s",
)
LEAST_HIT: Final = 0.99
STORED_SECONDS: Final = 20.0
BETWEEN_LOOKS: Final = 0.25


def hit(actor: Actor) -> Iterator[Step]:
    with speaking(actor, FIRST) as globex:
        yield Step(f"A key of {globex.organisation.name} was made, and the gateway knows it.")
        prompt, start = long_prompt(), floored(database_now(), 60)
        stored, engines = _stored(globex.namespace, start), engines_counted(globex.namespace)
        first = globex.ask(prompt)
        yield Step(f"{first.prompt_tokens:,} tokens were sent: {first.hit} % from cache.", [("First request", first)])
        second = globex.ask(prompt)
        is_shown = first.cached_tokens == 0 and hit_ratio(second) >= LEAST_HIT
        yield Step(
            f"The same once more: {second.hit} % from cache. {speed_words(first, second)}",
            [("Second request", second)],
            verdict=f"Hit: {first.prompt_tokens:,} tokens again, {first.hit} %, then {second.hit} % from cache",
            tone="ok" if is_shown else "warn",
        )
        yield from _compared(globex.namespace, start, stored, engines, first, second)
    yield Step("The key is revoked.")


def _compared(
    namespace: Namespace, start: datetime, stored: Counted, engines: Counted | None, first: Answer, second: Answer
) -> Iterator[Step]:
    """Compare by how much each of the four counts has grown since before the two requests."""
    header = Counted(2, first.prompt_tokens + second.prompt_tokens, first.cached_tokens + second.cached_tokens)
    usage = Counted(
        2,
        first.usage_prompt_tokens + second.usage_prompt_tokens,
        first.usage_cached_tokens + second.usage_cached_tokens,
    )
    end, began = time.monotonic() + STORED_SECONDS, time.monotonic()
    database = _stored(namespace, start) - stored
    while database.requests < header.requests and time.monotonic() < end:
        time.sleep(BETWEEN_LOOKS)
        database = _stored(namespace, start) - stored
    waited = time.monotonic() - began
    after = engines_counted(namespace)
    engine = None if engines is None or after is None else after - engines
    witnesses = [
        ("Engine", engine, "its counters on /metrics, all engines added up"),
        ("Header", header, "x-luminet-cached-tokens and x-luminet-prompt-tokens"),
        ("Usage body", usage, "usage.prompt_tokens_details.cached_tokens"),
        ("Database", database, "minutes as stored, from which every page and invoice is added up"),
    ]
    counts = [count for _, count, _ in witnesses if count is not None]
    is_same = all(
        (count.prompt_tokens, count.cached_tokens) == (header.prompt_tokens, header.cached_tokens) for count in counts
    )
    many = "They agree to the token" if is_same and len(counts) == len(witnesses) else "Not all of them say the same"
    yield Step(
        f"The database had both requests {waited:.1f} s after the answer."
        if database.requests >= header.requests
        else f"The database did not have both requests within {STORED_SECONDS:.0f} s.",
        facts=[(name, _counted(count), basis) for name, count, basis in witnesses],
        facts_title=f"{many}: cached of prompt tokens of both requests, as {len(counts)} count them",
    )


def _counted(count: Counted | None) -> str:
    return "did not say" if count is None else f"{count.cached_tokens:,} of {count.prompt_tokens:,}"


def _stored(namespace: Namespace, start: datetime) -> Counted:
    scope = Scope(namespace.organisation_id, namespace.pk)
    counts = totals_counts(scope, Window("1h", start, database_now()))
    return Counted(counts["requests"], counts["prompt_tokens"], counts["cached_tokens"])
