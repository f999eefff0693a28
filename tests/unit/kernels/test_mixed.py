"""One batch of rows in different formats: each row as it would be by itself."""

import pytest
import torch
from torch import Tensor

from kernels.dispatch import Implementation
from kernels.errors import InvalidArgument
from kernels.layout import KV_FORMATS
from kernels.mixed import Group, attend_mixed, attend_mixed_reference
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.scales import LayerScales
from kernels.tables import page_table
from tests.unit.kernels.dense import assert_near, dense_attention, queries
from tests.unit.kernels.making import Filled, fill, make_layout, make_scales, poisoned_arena


class Batch:
    """Rows of several formats in one arena; their queries dealt out by turns."""

    def __init__(
        self, kv_formats: list[str], lengths: list[int], counts: list[int], heads: int, dtype: torch.dtype
    ) -> None:
        size = sum(
            sum(-(-length // 16) + 1 for length in lengths) * (make_layout(name).page_bytes + 64) for name in kv_formats
        )
        self.arena, self.counts, self.parts = poisoned_arena(size), counts, list[Filled]()
        for index, name in enumerate(kv_formats):
            layout = make_layout(name)
            begin = size * index // len(kv_formats) // 16 * 16
            begin = max((max(map(max, part.offsets)) + part.layout.page_bytes for part in self.parts), default=begin)
            self.parts.append(
                fill(layout, lengths, seed=index, scales=make_scales(layout, index), arena=self.arena, begin=begin)
            )
        tokens = sum(counts)
        self.q = queries(self.parts[0], tokens * len(kv_formats), heads, dtype)
        self.places = [torch.arange(tokens) * len(kv_formats) + index for index in range(len(kv_formats))]

    def groups(self) -> list[Group]:
        return [
            (places, page_table(self.arena, part.layout, part.offsets, part.lengths, self.counts))
            for places, part in zip(self.places, self.parts, strict=True)
        ]

    def scales(self, layer: int) -> dict[str, LayerScales]:
        return {part.layout.kv_format.name: part.scales.layer(layer) for part in self.parts}


@pytest.mark.parametrize("counts", [[1, 1], [5, 17]])
def test_every_format_in_one_batch(counts: list[int]) -> None:
    batch = Batch(list(KV_FORMATS), [20, 17], counts, 4, torch.float32)
    found = attend_mixed(batch.q, batch.arena, batch.groups(), 1, batch.scales(1))
    reference = attend_mixed_reference(batch.q, batch.arena, batch.groups(), 1, batch.scales(1))
    for places, part in zip(batch.places, batch.parts, strict=True):
        wanted = dense_attention(part, 1, batch.q[places], counts)
        assert_near((found[0][places], found[1][places]), wanted, 1e-5)
        assert_near((reference[0][places], reference[1][places]), wanted, 1e-5)


@pytest.mark.parametrize("counts", [[1, 1], [2, 3]])
def test_each_row_is_as_by_itself(implementation: Implementation, counts: list[int]) -> None:
    batch = Batch(["bf16", "int8"], [20, 7], counts, 2, torch.bfloat16)
    means, sums = attend_mixed(batch.q, batch.arena, batch.groups(), 0, batch.scales(0), window=18)
    op = paged_decode if counts == [1, 1] else paged_prefill
    for places, table in batch.groups():
        scales = batch.scales(0)[table.layout.kv_format.name]
        alone = op(batch.q[places], batch.arena, table, 0, scales, window=18)
        assert torch.equal(means[places], alone[0])
        assert torch.equal(sums[places], alone[1])


def test_decoding_and_prefilling_share_a_batch() -> None:
    batch = Batch(["int8", "fp8"], [20, 17], [1, 1], 2, torch.float32)
    first, second = batch.parts
    counts = [3, 1]
    table = page_table(batch.arena, second.layout, second.offsets, second.lengths, counts)
    q = queries(first, 6, 2)
    groups = [(torch.tensor([5, 0]), batch.groups()[0][1]), (torch.tensor([1, 2, 3, 4]), table)]
    means, sums = attend_mixed(q, batch.arena, groups, 1, batch.scales(1))
    assert_near((means[[5, 0]], sums[[5, 0]]), dense_attention(first, 1, q[[5, 0]], [1, 1]), 1e-5)
    assert_near((means[1:5], sums[1:5]), dense_attention(second, 1, q[1:5], counts), 1e-5)


def test_bad_input_is_refused_by_its_name() -> None:
    batch = Batch(["int8", "fp8"], [20, 17], [1, 1], 2, torch.float32)
    (places, table), other = batch.groups()

    def refused(argument: str, q: Tensor, groups: list[Group], scales: dict[str, LayerScales], layer: int = 0) -> None:
        with pytest.raises(InvalidArgument) as caught:
            attend_mixed(q, batch.arena, groups, layer, scales)
        assert caught.value.argument == argument

    groups, scales = [(places, table), other], batch.scales(0)
    refused("q", batch.q[:3], groups, scales)
    refused("q", batch.q, [], scales)
    refused("q", batch.q.half(), groups, scales)
    refused("groups", batch.q, [(places.int(), table), other], scales)
    refused("groups", batch.q, [(places[:1], table), other], scales)
    refused("groups", batch.q, [(places, table), (places, other[1])], scales)
    refused("groups", batch.q, [(places + 8, table), other], scales)
    refused("scales", batch.q, groups, {"int8": scales["int8"]})
    refused("layer", batch.q, groups, scales, layer=2)
