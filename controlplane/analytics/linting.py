"""Lints prompts that a user submits, within limits. Stores nothing of them."""

import re
from collections.abc import Sequence
from typing import Final

from engine_agent.divergence.linting import Lint, lint
from engine_agent.divergence.prompt_texts import PromptText, prompt_of, prompts_of_file

MOST_PROMPTS: Final = 32
MOST_TOKENS: Final = 2_048  # of each prompt
MOST_LOOKS: Final = 24
_BETWEEN = re.compile(r"^[ \t]*-{3,}[ \t]*\r?$\n?", re.MULTILINE)


def prompts_linted(prompts: Sequence[PromptText]) -> Lint:
    return lint(prompts, most_tokens=MOST_TOKENS, most_looks=MOST_LOOKS)


def prompts_typed(text: str) -> list[PromptText]:
    """Return the prompts of a text: in the format of a file, or separated by lines of dashes. Raise NoPrompt."""
    prompts = prompts_of_file(text)
    if len(prompts) > 1 or prompts[0].parts != ((0, "text"),):
        return prompts
    return [prompt_of(part.strip("\r\n")) for part in _BETWEEN.split(text) if part.strip()] or prompts
