"""What `transformers` says of the same folder, token by token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class Oracle:
    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM  # here, as it takes seconds

        loading: Any = AutoModelForCausalLM
        self.model = loading.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> Tensor:
        """What comes after each of them, [tokens, vocab_size]."""
        logits: Tensor = self.model(torch.tensor([list(tokens)])).logits[0]
        return logits

    def greedy(self, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
        """The tokens greedy decoding takes, as far as `answer` goes along with it: equal if and only if it does to its
        end. One forward pass over both, instead of one for each token.
        """
        logits = self.logits([*prompt, *answer])
        return [int(row.argmax()) for row in logits[len(prompt) - 1 : -1]]

    @torch.no_grad()
    def generated(self, prompt: Sequence[int], most_tokens: int, **settings: Any) -> list[list[int]]:
        """What its own `generate` makes of a prompt, without the prompt."""
        tokens = torch.tensor([list(prompt)])
        found = self.model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=False,
            max_new_tokens=most_tokens,
            **settings,
        )
        return [[int(token) for token in row] for row in found[:, len(prompt) :]]
