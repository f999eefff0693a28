"""Send the identical prompt as another organisation and check that none of it is served from the cache."""

from collections.abc import Iterator
from typing import Final

from controlplane.dashboard.experiments.sent import hit_ratio
from controlplane.demo.experiments.kinds.speaking import FIRST, SECOND, long_prompt, speaking
from controlplane.demo.experiments.trials import About, Step
from tenants.actor import Actor

ABOUT: Final = About(
    "isolation",
    "Isolation: the identical prompt as another organisation",
    "Globex sends a prompt twice, so that it is in the cache. Then Initech sends the same bytes.",
    "Both keys are revoked; the blocks expire like any others.",
    "about 10 s",
)
TOKENS: Final = 2_000
LEAST_HIT: Final = 0.9


def isolation(actor: Actor) -> Iterator[Step]:
    prompt = long_prompt(TOKENS)
    with speaking(actor, FIRST) as globex, speaking(actor, SECOND) as initech:
        yield Step(f"Keys of {globex.organisation.name} and {initech.organisation.name} were made.")
        first = globex.ask(prompt)
        yield Step(f"Globex sends {first.prompt_tokens:,} tokens: {first.hit} %.", [("Globex", first)])
        repeated = globex.ask(prompt)
        yield Step(f"Globex sends them again: {repeated.hit} %. They are in the cache.", [("Globex, again", repeated)])
        answer = initech.ask(prompt)
        is_shown = hit_ratio(repeated) >= LEAST_HIT and answer.cached_tokens == 0
        yield Step(
            f"Initech sends the very same bytes: {answer.hit} %, {answer.cached_tokens:,} tokens from cache.",
            [("Initech", answer)],
            verdict=f"Isolation: {repeated.hit} % for Globex again, {answer.hit} % for Initech with the same prompt",
            tone="ok" if is_shown else "bad" if answer.cached_tokens else "warn",
        )
        last = globex.ask(prompt)
        yield Step(f"Globex once more: {last.hit} %. What it holds was not touched.", [("Globex, after that", last)])
    yield Step("Both keys are revoked.")
