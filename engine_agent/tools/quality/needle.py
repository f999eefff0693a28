"""Retrieve one key among near-duplicates, without training: the effect of a format's rounding on retrieval.

4,096 keys in clusters of similar members (a cosine of .9 or .95 between any two), with a few channels far from zero in
every key, and a random value for each. Each key is queried through pages and `paged_decode`, with weights so sharp that
attention selects one key; the result should be nearest to that key's own value.
"""

import torch
from torch import Tensor
from torch.nn import functional

from kernels.formats import KvFormat
from kernels.kv_write import kv_write
from kernels.layout import PageLayout
from kernels.paged_decode import paged_decode
from kernels.scales import ScaleSet, neutral_scales
from kernels.tables import page_table, write_table

KEYS, CLUSTER, HEAD_SIZE = 4096, 16, 128
COSINES = (0.9, 0.95)
OUTLIERS, LEAST, MOST = 4, 7.0, 12.0
SHARPNESS = 16.0  # a tenth less in cosine is e^18 times less in weight
QUERIES = 128  # queried at once, as heads that share one key head: keys are then unpacked once for all of them
SEED = 11


def keys_of(cosine: float, *, keys: int = KEYS, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Return keys without their outliers, [keys, HEAD_SIZE], and the outliers, [HEAD_SIZE]."""
    chance = torch.Generator().manual_seed(seed)
    centres = torch.randn(keys // CLUSTER, 1, HEAD_SIZE, generator=chance)
    deviations = torch.randn(keys // CLUSTER, CLUSTER, HEAD_SIZE, generator=chance)
    alike = (cosine**0.5 * centres + (1 - cosine) ** 0.5 * deviations).flatten(0, 1)
    alike = functional.normalize(alike, dim=-1) * HEAD_SIZE**0.5  # of equal length, or the longest would win
    outliers = torch.zeros(HEAD_SIZE)
    channels = torch.randperm(HEAD_SIZE, generator=chance)[:OUTLIERS]
    outliers[channels] = LEAST + (MOST - LEAST) * torch.rand(OUTLIERS, generator=chance)
    return alike, outliers


def found_share(
    kv_format: KvFormat,
    cosine: float,
    *,
    keys: int = KEYS,
    is_centred: bool = False,
    device: torch.device | str = "cpu",
) -> float:
    """Return the share of retrieved keys. `is_centred`: with key means, from other keys with the same outliers."""
    sought_keys, outliers = keys_of(cosine, keys=keys)
    values = torch.randn(keys, HEAD_SIZE, generator=torch.Generator().manual_seed(SEED + 1))
    layout = PageLayout(kv_format, layers=1, kv_heads=1, head_size=HEAD_SIZE)
    scales = neutral_scales(layout, device)
    if is_centred:
        calibration_keys, _ = keys_of(cosine, keys=keys, seed=SEED + 2)
        scales = ScaleSet(scales.keys, scales.values, (calibration_keys.mean(0) + outliers).view(1, 1, -1).to(device))
    arena = torch.zeros(keys // layout.block_tokens * layout.page_bytes, dtype=torch.uint8, device=device)
    pages = list(range(0, arena.numel(), layout.page_bytes))
    positions = [(page, slot) for page in pages for slot in range(layout.block_tokens)]
    table = write_table(arena, layout, [page for page, _ in positions], [slot for _, slot in positions])
    written, answers = (sought_keys + outliers).to(device)[:, None], values.to(device)[:, None]
    kv_write(arena, table, 0, written, answers, scales.layer(0))
    reads = page_table(arena, layout, [pages], [keys])
    nearest = []
    for queries in sought_keys.to(device).split(QUERIES):
        scaled_queries = (queries * (SHARPNESS / HEAD_SIZE**0.5))[None]
        out, _ = paged_decode(scaled_queries, arena, reads, 0, scales.layer(0), softmax_scale=1.0)
        nearest.append(_nearest(out[0].float(), answers[:, 0]))
    return (torch.cat(nearest).cpu() == torch.arange(keys)).float().mean().item()


def _nearest(out: Tensor, values: Tensor) -> Tensor:
    return (functional.normalize(out, dim=-1) @ functional.normalize(values, dim=-1).T).argmax(-1)
