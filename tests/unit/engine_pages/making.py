"""Small pages with something in them, and a host tier that can be held up."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event

import torch
from torch import Tensor

from engine_agent.engine.host_tier import HostTier
from engine_agent.engine.kv_pages import KvPages
from kernels.formats import kv_format_named
from kernels.layout import PageLayout

FORMATS = ("fp32", "bf16", "int8")
PAGE = 1_024  # bytes, of bf16


def layouts(formats: Iterable[str] = FORMATS) -> dict[str, PageLayout]:
    """2,048, 1,024 and 640 bytes."""
    return {name: PageLayout(kv_format_named(name), layers=1, kv_heads=1, head_size=16) for name in formats}


@contextmanager
def kv_pages(
    *, pages: int = 64, host_pages: int = 64, formats: Iterable[str] = ("bf16",), device: str = "cpu"
) -> Iterator[KvPages]:
    """As many pages of bf16 in each tier. With one format every number is a page."""
    kv = KvPages(layouts(formats), device_bytes=pages * PAGE, host_bytes=host_pages * PAGE, device=device)
    kv.open_host()
    try:
        yield kv
    finally:
        kv.close()


def host_of(kv: KvPages) -> HostTier:
    host = kv._host
    assert host
    return host


@contextmanager
def held_up(kv: KvPages) -> Iterator[Event]:
    """The host tier's thread does nothing until the event is set, at the latest at the end."""
    go_on, is_held = Event(), Event()

    def hold() -> None:
        is_held.set()
        go_on.wait()

    host_of(kv).submit(hold)
    is_held.wait()
    try:
        yield go_on
    finally:
        go_on.set()


def content(seed: int, size: int) -> Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def write(kv: KvPages, page: int, kv_format: str, what: Tensor) -> None:
    [at] = kv.offsets([page], kv_format)
    kv.arena[at : at + len(what)] = what.to(kv.arena.device)


def read(kv: KvPages, page: int, kv_format: str) -> Tensor:
    [at] = kv.offsets([page], kv_format)
    return kv.arena[at : at + kv.layouts[kv_format].page_bytes].cpu()


def read_host(kv: KvPages, page: int, kv_format: str) -> Tensor:
    kv.settle()
    host = host_of(kv).host
    [at] = host.offsets([page], kv_format)
    return host.bytes[at : at + host.page_bytes[kv_format]].clone()


def fill(kv: KvPages, pages: Sequence[int], kv_format: str) -> dict[int, Tensor]:
    """Each with something of its own."""
    written = {page: content(page, kv.layouts[kv_format].page_bytes) for page in pages}
    for page, what in written.items():
        write(kv, page, kv_format, what)
    return written
