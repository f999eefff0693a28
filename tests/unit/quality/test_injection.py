"""What is done to keys changes what is stored and not what is computed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine_agent.engine.model import load_model
from engine_agent.tools.quality.injection import CHANNELS, LEAST, MOST, Injection, loud, outliers
from engine_agent.tools.quality.observing import calibrate
from engine_agent.tools.quality.reading import reader
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout

LAYOUT = PageLayout(KV_FORMATS["fp32"], 2, 2, 32)


@pytest.mark.parametrize("kind", ["outliers", "stretch"])
def test_the_function_stays_and_the_keys_change(kind: str, folder: Path) -> None:
    model = load_model(folder)
    injection = outliers(model.config) if kind == "outliers" else Injection(stretch=256.0)
    tokens = torch.randint(1, 96, (2, 100), generator=torch.Generator().manual_seed(0))
    plain, changed = (
        reader(model, LAYOUT, None, one).read(tokens, decoded_tokens=8) for one in (Injection(), injection)
    )
    torch.testing.assert_close(changed, plain, atol=1e-3, rtol=0)
    stored = [
        calibrate(model, tokens, model_revision="", text_sha256="", injection=one) for one in (Injection(), injection)
    ]
    largest = [(one.key_mean.abs().amax(-1) + one.key_amax).max().item() for one in stored]
    assert largest[1] > 3 * largest[0]


def test_a_power_of_two_changes_not_a_bit(folder: Path) -> None:
    model = load_model(folder)
    tokens = torch.randint(1, 96, (1, 60), generator=torch.Generator().manual_seed(0))
    plain, changed = (
        reader(model, LAYOUT, None, Injection(stretch=stretch)).read(tokens, decoded_tokens=8)
        for stretch in (1.0, 64.0)
    )
    assert torch.equal(plain, changed)


def test_a_few_channels_of_each_head_lie_far_from_zero(folder: Path) -> None:
    config = load_model(folder).config
    offsets = outliers(config).offsets
    assert offsets is not None
    assert offsets.shape == (2, 2, 32)
    assert (offsets != 0).sum(-1).eq(CHANNELS).all()
    sizes = offsets[offsets != 0].abs()
    assert sizes.min() >= LEAST
    assert sizes.max() <= MOST
    assert len({tuple(head.nonzero().flatten().tolist()) for head in offsets.flatten(0, 1)}) > 1
    more = outliers(replace(config, layers=3)).offsets
    assert more is not None
    assert torch.equal(more[:2], offsets)


def test_loud_keys_lie_just_beyond_the_limit() -> None:
    assert loud(10.0, 448.0) == Injection(stretch=64.0)
    assert loud(500.0, 448.0) == Injection()
