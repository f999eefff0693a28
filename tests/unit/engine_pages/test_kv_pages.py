"""Pages on their way between device and host: never lost, never too early, and never served when they changed."""

from threading import Event, Thread

import pytest
import torch

from engine_agent.cache.operations import Copy, Demote, Load, Move, Operation, Zero
from engine_agent.engine import host_tier
from engine_agent.engine.host_tier import Loaded
from engine_agent.engine.kv_pages import KvPages
from tests.unit.engine_pages.making import FORMATS, fill, held_up, host_of, kv_pages, layouts, read, read_host

SOON = 10.0  # seconds nobody should need
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def loads(kv: KvPages) -> list[Loaded]:
    """All that are under way, reported."""
    found: list[Loaded] = []
    while kv.is_loading:
        found += kv.finished_loads(wait_seconds=SOON)
    return found


# There and back


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_what_went_down_comes_back_elsewhere(kv_format: str, device: str) -> None:
    with kv_pages(formats=[kv_format], device=device) as kv:
        written = fill(kv, [0, 1, 2], kv_format)
        kv.run([Demote(kv_format, page, 5 - page) for page in written])
        kv.run([Load(kv_format, 5 - page, 10 + page) for page in written])
        assert loads(kv) == [Loaded(kv_format, 10 + page, is_sound=True) for page in written]
        for page, what in written.items():
            assert torch.equal(read(kv, 10 + page, kv_format), what)
        assert kv.stats()["demoted_pages"] == kv.stats()["loaded_pages"] == 3


@pytest.mark.parametrize("device", DEVICES)
def test_a_page_that_goes_down_may_be_overwritten_at_once(device: str) -> None:
    with kv_pages(device=device) as kv:
        written = fill(kv, [0, 1], "bf16")
        with held_up(kv):
            kv.run([Demote("bf16", 0, 7), Demote("bf16", 1, 8)])
            kv.arena.zero_()
        for page, host_page in ((0, 7), (1, 8)):
            assert torch.equal(read_host(kv, host_page, "bf16"), written[page])


def test_more_pages_than_lie_aside_at_once_go_down_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tier, "ASIDE_BYTES", 3_000)
    with kv_pages() as kv:
        written = fill(kv, range(20), "bf16")
        kv.run([Demote("bf16", page, 40 + page) for page in written])
        assert all(torch.equal(read_host(kv, 40 + page, "bf16"), what) for page, what in written.items())


def test_the_last_of_two_demotions_to_one_page_is_what_lies_there() -> None:
    with kv_pages() as kv:
        written = fill(kv, [0, 1], "bf16")
        kv.run([Demote("bf16", 0, 7), Demote("bf16", 1, 7), Load("bf16", 7, 9)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=True)]
        assert torch.equal(read(kv, 9, "bf16"), written[1])


def test_the_last_of_two_loads_to_one_page_is_what_lies_there() -> None:
    with kv_pages() as kv:
        written = fill(kv, [0, 1], "bf16")
        kv.run([Demote("bf16", 0, 7), Demote("bf16", 1, 8), Load("bf16", 7, 9), Load("bf16", 8, 9)])
        assert [one.is_sound for one in loads(kv)] == [True, True]
        assert torch.equal(read(kv, 9, "bf16"), written[1])


def test_pages_that_moved_on_the_host_come_back_from_there() -> None:
    with kv_pages() as kv:
        written = fill(kv, [0], "bf16")
        kv.run([Demote("bf16", 0, 7), Move("bf16", 7, 3, "host"), Zero("host", "bf16", (7,))])
        kv.run([Load("bf16", 3, 9), Load("bf16", 7, 10)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=True), Loaded("bf16", 10, is_sound=False)]
        assert torch.equal(read(kv, 9, "bf16"), written[0])


# Not too early


def test_nobody_who_needs_a_page_is_ready_before_it_was_reported() -> None:
    with kv_pages() as kv:
        fill(kv, [0], "bf16")
        with held_up(kv) as go_on:
            kv.run([Demote("bf16", 0, 7), Load("bf16", 7, 9)])
            assert kv.finished_loads() == []
            assert not kv.is_ready([4, 9], "bf16")
            assert kv.is_ready([4, 8, 10], "bf16")
            go_on.set()
            kv.settle()
            assert not kv.is_ready([4, 9], "bf16"), "it arrived, and nobody has looked whether it is sound"
        assert kv.finished_loads() == [Loaded("bf16", 9, is_sound=True)]
        assert kv.is_ready([4, 9], "bf16")
        assert not kv.is_loading


def test_whoever_took_over_a_pages_memory_in_another_format_waits_for_the_load_to_it() -> None:
    with kv_pages(formats=FORMATS) as kv, held_up(kv):
        device, _ = kv.storages
        kv.run([Load("bf16", 0, 0)])
        first_elsewhere = device.stride
        assert not kv.is_ready([1], "int8")
        assert kv.is_ready([first_elsewhere], "int8")


@pytest.mark.parametrize(
    "operation",
    [Zero("device", "bf16", (9,)), Copy("bf16", 1, 9), Move("bf16", 1, 9), Demote("bf16", 9, 8), Load("bf16", 6, 9)],
)
def test_what_touches_a_page_waits_for_the_load_to_it(operation: Operation) -> None:
    with kv_pages() as kv:
        written = fill(kv, [0, 1, 2], "bf16")
        kv.run([Demote("bf16", 0, 7), Demote("bf16", 2, 6)])
        with held_up(kv) as go_on:
            kv.run([Load("bf16", 7, 9)])
            touching = Thread(target=kv.run, args=([operation],))
            touching.start()
            touching.join(0.2)  # long enough for what does not wait
            assert touching.is_alive()
            go_on.set()
            touching.join(SOON)
        loads(kv)
        expected = {Zero: torch.zeros(1_024, dtype=torch.uint8), Demote: written[0], Load: written[2]}
        assert torch.equal(read(kv, 9, "bf16"), expected.get(type(operation), written[1]))
        if isinstance(operation, Demote):
            assert torch.equal(read_host(kv, 8, "bf16"), written[0])


@pytest.mark.parametrize(("page", "kv_format"), [(9, "bf16"), (10, "int8")])
def test_a_step_does_not_write_where_a_load_is_on_its_way_for_somebody_who_has_left(page: int, kv_format: str) -> None:
    with kv_pages(formats=FORMATS) as kv:
        assert kv.storages[0].stride == 3, "so those two are in one slab"
        with held_up(kv) as go_on:
            kv.run([Load("bf16", 7, 9)])
            found: list[list[int]] = []
            writing = Thread(target=lambda: found.append(kv.offsets([page], kv_format)))
            writing.start()
            writing.join(0.2)  # long enough for what does not wait
            assert found == []
            go_on.set()
            writing.join(SOON)
        assert found == [[kv.storages[0].offset(page, kv_format)]]


def test_who_waits_for_loads_is_woken() -> None:
    with kv_pages() as kv:
        woken = Event()
        kv.on_loaded = woken.set
        fill(kv, [0], "bf16")
        kv.run([Demote("bf16", 0, 7), Load("bf16", 7, 9)])
        assert woken.wait(SOON)
        assert kv.finished_loads() == [Loaded("bf16", 9, is_sound=True)]


def test_waiting_for_a_load_ends_when_time_is_over() -> None:
    with kv_pages() as kv, held_up(kv):
        kv.run([Load("bf16", 7, 9)])
        assert kv.finished_loads(wait_seconds=0.01) == []
        assert kv.is_loading


# Never what it was not


@pytest.mark.parametrize("kv_format", FORMATS)
def test_a_page_that_changed_on_the_host_is_told_from_those_that_did_not(kv_format: str) -> None:
    with kv_pages(formats=[kv_format]) as kv:
        fill(kv, [0, 1, 2], kv_format)
        kv.run([Demote(kv_format, page, 5 + page) for page in range(3)])
        kv.settle()
        host = host_of(kv).host
        [at] = host.offsets([6], kv_format)
        host.bytes[at + 77] ^= 1
        kv.run([Load(kv_format, 5 + page, 10 + page) for page in range(3)])
        assert [one.is_sound for one in loads(kv)] == [True, False, True]
        assert kv.stats()["damaged_pages"] == 1


@pytest.mark.parametrize("before", [[], [Zero("host", "bf16", (7,))]], ids=["nothing", "zeros"])
def test_a_page_that_nobody_demoted_is_not_sound(before: list[Operation]) -> None:
    with kv_pages() as kv:
        kv.run([*before, Load("bf16", 7, 9)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=False)]


def test_a_copy_that_fails_is_not_sound_and_the_next_one_is(caplog: pytest.LogCaptureFixture) -> None:
    with kv_pages() as kv:
        fill(kv, [0], "bf16")
        beyond = kv.storages[1].slabs * kv.storages[1].stride
        kv.run([Demote("bf16", 0, 7), Load("bf16", beyond, 8)])
        kv.run([Load("bf16", 7, 9)])
        assert loads(kv) == [Loaded("bf16", 8, is_sound=False), Loaded("bf16", 9, is_sound=True)]
        assert "failed: what it was to bring is not served" in caplog.text


def test_what_a_failed_demotion_left_is_not_sound() -> None:
    with kv_pages() as kv:
        fill(kv, [0, 1], "bf16")
        kv.run([Demote("bf16", 0, 7)])
        kv.settle()
        host = host_of(kv)
        whole, host.host.bytes = host.host.bytes, host.host.bytes[:16]  # there is no room for it
        kv.run([Demote("bf16", 1, 7)])
        kv.settle()
        host.host.bytes = whole
        kv.run([Load("bf16", 7, 9)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=False)], "neither the new one nor what was there before"


def turned(kv: KvPages) -> None:
    """A page of the host, the seventh, that is not what it was."""
    fill(kv, [0], "bf16")
    kv.run([Demote("bf16", 0, 7)])
    kv.settle()
    [at] = host_of(kv).host.offsets([7], "bf16")
    host_of(kv).host.bytes[at] ^= 1


def test_what_arrived_unsound_and_went_down_again_stays_unsound() -> None:
    with kv_pages() as kv:
        turned(kv)
        kv.run([Load("bf16", 7, 9), Demote("bf16", 9, 8), Load("bf16", 8, 10)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=False), Loaded("bf16", 10, is_sound=False)]
        kv.run([Demote("bf16", 9, 6)])  # asked for before that was told
        kv.run([Load("bf16", 6, 11)])
        assert loads(kv) == [Loaded("bf16", 11, is_sound=False)]
        fill(kv, [9], "bf16")
        kv.run([Demote("bf16", 9, 6), Load("bf16", 6, 11)])
        assert loads(kv) == [Loaded("bf16", 11, is_sound=True)]


def test_what_arrived_unsound_and_was_moved_on_is_reported_there() -> None:
    with kv_pages() as kv:
        turned(kv)
        kv.run([Load("bf16", 7, 9)])
        assert loads(kv) == [Loaded("bf16", 9, is_sound=False)]
        kv.run([Move("bf16", 9, 11), Move("bf16", 11, 12)])
        assert not kv.is_ready([12], "bf16")
        assert {one.page for one in loads(kv) if not one.is_sound} == {11, 12}
        kv.run([Move("bf16", 12, 13)])
        assert {one.page for one in loads(kv)} == {13}
        kv.run([])
        kv.run([Move("bf16", 13, 14)])
        assert loads(kv) == []


# Purges, and what the tier is worth


@pytest.mark.parametrize("device", DEVICES)
def test_a_purged_page_is_zero_in_both_tiers(device: str) -> None:
    with kv_pages(device=device) as kv:
        fill(kv, [0, 1], "bf16")
        kv.run([Demote("bf16", 0, 7), Zero("host", "bf16", (7,)), Zero("device", "bf16", (0,))])
        assert not read_host(kv, 7, "bf16").any()
        assert not read(kv, 0, "bf16").any()
        assert read(kv, 1, "bf16").any()


def test_the_host_takes_the_formats_that_are_loaded_sooner_than_computed() -> None:
    with kv_pages(host_pages=0, formats=FORMATS) as kv:
        assert kv.worth_loading(0.0) == []
        assert kv.worth_loading(1.0) == list(FORMATS)
        assert 0 < kv.measure_load_seconds("bf16") < 0.01


def test_a_format_that_is_not_worth_it_has_no_place_on_the_host() -> None:
    kv = KvPages(layouts(), device_bytes=64_000, host_bytes=64_000)
    kv.open_host(["int8"])
    device, host = kv.storages
    kv.close()
    assert device.most_pages("bf16") > 0
    assert host.most_pages("int8") > 0
    assert list(host_of(kv).host.page_bytes) == ["int8"]


@pytest.mark.parametrize(("host_bytes", "kv_formats"), [(0, None), (64_000, [])])
def test_there_is_no_host_tier_where_nothing_asks_for_one(host_bytes: int, kv_formats: list[str] | None) -> None:
    kv = KvPages(layouts(), device_bytes=64_000, host_bytes=host_bytes)
    kv.open_host(kv_formats)
    assert len(kv.storages) == 1
    kv.run([Zero("device", "bf16", (0,))])
    kv.settle()
    kv.close()
