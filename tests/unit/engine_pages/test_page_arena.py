"""Pages within one tier: where they lie, and that what was asked for in an order comes out as in that order."""

import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.cache.operations import Copy, Move, Zero
from engine_agent.engine.errors import BadSetting
from engine_agent.engine.kv_pages import KvPages
from engine_agent.engine.page_arena import PageArena, Rewrite
from kernels.formats import kv_format_named
from kernels.layout import PageLayout
from tests.unit.engine_pages.making import FORMATS, PAGE, content, kv_pages, layouts

FEW = 6  # pages, so that they meet
rewrites = st.lists(
    st.one_of(
        st.builds(lambda a, b: Copy("bf16", a, b), st.integers(0, FEW - 1), st.integers(0, FEW - 1)),
        st.builds(lambda a, b: Move("bf16", a, b), st.integers(0, FEW - 1), st.integers(0, FEW - 1)),
        st.builds(lambda pages: Zero("device", "bf16", tuple(pages)), st.lists(st.integers(0, FEW - 1), max_size=3)),
    ).filter(lambda one: isinstance(one, Zero) or _source(one) != _target(one)),
    max_size=12,
)


def _source(one: Copy | Move) -> int:
    return one.source if isinstance(one, Copy) else one.source_page


def _target(one: Copy | Move) -> int:
    return one.target if isinstance(one, Copy) else one.target_page


def arena(pages: int = FEW) -> PageArena:
    found = PageArena(layouts(["bf16"]), pages * PAGE, tier="device", device=torch.device("cpu"), pinned=False)
    found.bytes.copy_(content(1, pages * PAGE))
    return found


@settings(deadline=None)
@given(operations=rewrites)
def test_many_at_once_are_as_one_after_the_other(operations: list[Rewrite]) -> None:
    together = arena()
    expected = [page.clone() for page in together.bytes.split(PAGE)]
    for one in operations:
        if isinstance(one, Zero):
            for page in one.pages:
                expected[page] = torch.zeros_like(expected[page])
        else:
            expected[_target(one)] = expected[_source(one)].clone()
    together.rewrite("bf16", operations)
    assert torch.equal(together.bytes, torch.cat(expected))


@pytest.mark.parametrize("kv_format", FORMATS)
def test_a_page_lies_where_the_storage_says(kv_format: str) -> None:
    with kv_pages(pages=200, host_pages=0, formats=FORMATS) as kv:
        [storage] = kv.storages
        pages = storage.take(kv_format, storage.most_pages(kv_format))
        assert kv.offsets(pages, kv_format) == [storage.offset(page, kv_format) for page in pages]


@pytest.mark.parametrize(
    ("device_bytes", "host_bytes", "field", "told"),
    [
        (1_000, 0, "pool_bytes", "1,000 bytes have no room for a page of fp32, 2,048 bytes"),
        (1 << 50, 0, "pool_bytes", "1,125,899,906,842,624 bytes cannot be had here"),
        (64_000, 1_000, "host_bytes", "1,000 bytes have no room for a page of fp32, 2,048 bytes"),
        (64_000, 1 << 50, "host_bytes", "1,125,899,906,842,624 bytes cannot be had here"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_its_name(
    device_bytes: int, host_bytes: int, field: str, told: str
) -> None:
    with pytest.raises(BadSetting) as refused:
        KvPages(layouts(), device_bytes=device_bytes, host_bytes=host_bytes).open_host()
    assert (refused.value.field, refused.value.problem) == (field, told)


def test_pages_that_were_never_used_take_no_memory() -> None:
    large = {"bf16": PageLayout(kv_format_named("bf16"), layers=28, kv_heads=8, head_size=128)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kv = KvPages(large, device_bytes=4 << 30, host_bytes=4 << 30)
    kv.open_host()
    kv.close()
    assert kv.storages[1].capacity_bytes > 3 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # in KiB
