"""Generate text with the demo model, without a cache: for samples and tests. Use the engine for anything else."""

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from engine_agent.tools.training.chats import END, END_OF_TEXT, Message, render
from engine_agent.tools.training.network import Llama


@torch.inference_mode()
def write(
    model: Llama, tokenizer: Tokenizer, prompt: str, *, tokens: int, temperature: float = 0.0, seed: int = 0
) -> tuple[str, bool]:
    """Return the continuation of the prompt, and whether the model ended it itself. Temperature 0 is greedy."""
    generator = torch.Generator().manual_seed(seed)
    ends = {tokenizer.token_to_id(END), tokenizer.token_to_id(END_OF_TEXT)}
    read, written = tokenizer.encode(prompt).ids, list[int]()
    for _ in range(tokens):
        logits = model(torch.tensor([read + written]))[0, -1].float()
        token = pick(logits, temperature, generator)
        if token in ends:
            return tokenizer.decode(written), True
        written.append(token)
    return tokenizer.decode(written), False


def pick(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))


def answer(model: Llama, tokenizer: Tokenizer, chat: Sequence[Message], *, tokens: int = 100) -> tuple[str, bool]:
    """Return the assistant's likeliest next message, and whether it ended with the end-of-turn token."""
    return write(model, tokenizer, render(chat, add_generation_prompt=True), tokens=tokens)
