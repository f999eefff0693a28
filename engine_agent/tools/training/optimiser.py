"""The optimisers: Muon for matrices, AdamW for the embedding and the norms, one learning rate curve for both."""

from collections.abc import Sequence

import torch
from torch.optim import AdamW, Muon, Optimizer

from engine_agent.tools.training.network import Llama

WARM_UP, COOL_DOWN = 0.02, 0.6  # shares of all steps


def make_optimisers(model: Llama, *, muon_rate: float, adam_rate: float) -> list[Optimizer]:
    matrices = [weight for name, weight in model.named_parameters() if weight.dim() == 2 and "embed" not in name]
    remaining_weights = [weight for name, weight in model.named_parameters() if weight.dim() != 2 or "embed" in name]
    return [
        Muon(matrices, lr=muon_rate, momentum=0.95, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        AdamW(remaining_weights, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_share(done: float) -> float:
    """Return the share of the full learning rate after this share of all tokens: up, level, down to zero."""
    return min(1.0, done / WARM_UP, (1.0 - done) / COOL_DOWN)


def step(optimisers: Sequence[Optimizer], full_rates: Sequence[float], share: float) -> None:
    for optimiser, full_rate in zip(optimisers, full_rates, strict=True):
        for group in optimiser.param_groups:
            group["lr"] = full_rate * share
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


def clip(model: Llama, norm: float = 1.0) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
