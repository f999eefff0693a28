"""Move a user's name to the prompt's end: where prompts diverge, the forecast effect and the measured one."""

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from controlplane.analytics.linting import prompts_linted
from controlplane.dashboard.experiments.asking import Answer
from controlplane.dashboard.experiments.texts import fresh_text, words_for
from controlplane.demo.experiments.kinds.speaking import FIRST, Messages, Voice, speaking
from controlplane.demo.experiments.trials import About, NotPossible, Step
from engine_agent.divergence.linting import Lint
from engine_agent.divergence.prompt_texts import prompt_of
from tenants.actor import Actor

ABOUT: Final = About(
    "prompt",
    "Prompt fix: a user’s name moves to the end",
    "Four people ask the same assistant. First their name stands before the instructions, then behind them.",
    "The key is revoked; the blocks expire like any others.",
    "about 15 s",
)
NAMES: Final = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Edsger Dijkstra")
TOKENS: Final = 900
CLOSE_POINTS: Final = 10.0  # the linter counts tokens by words, the engine by its tokenizer


def prompt_fix(actor: Actor) -> Iterator[Step | None]:
    text = fresh_text(words_for(TOKENS))
    first_shape, last_shape = _named_first(text), _named_last(text)
    lint = prompts_linted([prompt_of(prompt) for prompt in first_shape])
    if not lint.findings:
        raise NotPossible("The linter found nothing that varies.")
    token = lint.findings[0].finding.token
    yield Step(
        f"The linter, before anything is sent: these prompts differ at token {token:,}. {lint.findings[0].advice}"
    )
    with speaking(actor, FIRST) as globex:
        before = yield from _sent(globex, first_shape)
        now = _percent(before)
        yield Step(f"Sent with the name first: {now:.1f} % from cache.", _labelled("Name first", before))
        after = yield from _sent(globex, last_shape)
        then = _percent(after)
        yield Step(f"Sent with the name last: {then:.1f} % from cache.", _labelled("Name last", after))
        gain, predicted_gain = then - now, 100 * (lint.hit_ratio_then - lint.hit_ratio_now)
        yield Step(
            f"The linter said {predicted_gain:.0f} points more; it was {gain:.0f} points.",
            facts=_facts(lint, now, then),
            facts_title="Prediction beside measurement",
            verdict=f"Prompt fix: differs at token {token:,}; at the end {then:.0f} % instead of {now:.0f} %",
            tone="ok" if gain > 0 and abs(predicted_gain - gain) <= CLOSE_POINTS else "warn",
        )
    yield Step("The key is revoked.")


def _sent(voice: Voice, prompts: Sequence[Messages]) -> Generator[None, None, list[Answer]]:
    """Send the prompts in turn. The generator returns one answer for each."""
    answers = []
    for prompt in prompts:
        answers.append(voice.ask(prompt))
        yield None
    return answers


def _named_first(text: str) -> list[Messages]:
    return [[_system(f"You speak with {name}. {text}"), _question()] for name in NAMES]


def _named_last(text: str) -> list[Messages]:
    return [[_system(f"{text} You speak with {name}."), _question()] for name in NAMES]


def _system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


def _question() -> dict[str, str]:
    return {"role": "user", "content": "What is this about?"}


def _percent(answers: Sequence[Answer]) -> float:
    return 100 * sum(answer.cached_tokens for answer in answers) / sum(answer.prompt_tokens for answer in answers)


def _labelled(label: str, answers: Sequence[Answer]) -> list[tuple[str, Answer]]:
    return [(f"{label}: {name}", answer) for name, answer in zip(NAMES, answers, strict=True)]


def _facts(lint: Lint, now: float, then: float) -> list[tuple[str, str, str]]:
    predicted = "as the linter foretold it from the four prompts’ text; tokens counted by words"
    measured = "as the headers of the eight answers say it, all prompt tokens added up"
    return [
        ("Name first, predicted", f"{100 * lint.hit_ratio_now:.1f} %", predicted),
        ("Name first, measured", f"{now:.1f} %", measured),
        ("Name last, predicted", f"{100 * lint.hit_ratio_then:.1f} %", predicted),
        ("Name last, measured", f"{then:.1f} %", measured),
    ]
