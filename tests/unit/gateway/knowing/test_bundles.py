"""What turns bodies into tokens is what its name says, comes once, and is there after a restart."""

from hashlib import sha256
from pathlib import Path

import pytest

from engine_agent.gateway.knowing import bundles
from engine_agent.gateway.knowing.bundles import BadBundleFetched, Bundles
from tests.unit.gateway.knowing.saying import bundle_bytes, loaded


class Source:
    """An engine that has bundles, and counts who fetches them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = data, 0

    async def fetch(self, name: str) -> bytes:
        self.asked += 1
        return self.data


NAME = loaded().name


async def test_a_bundle_is_fetched_once_and_kept_over_a_restart(tmp_path: Path) -> None:
    source = Source(bundle_bytes())
    first = Bundles(tmp_path)
    assert first.get(NAME) is None
    found = await first.ensure(NAME, source.fetch)
    assert await first.ensure(NAME, source.fetch) is found
    again = Bundles(tmp_path)
    assert (await again.ensure(NAME, source.fetch)).bundle.vocab_size == found.bundle.vocab_size
    assert source.asked == 1


async def test_one_that_was_torn_on_disk_is_fetched_again(tmp_path: Path) -> None:
    source = Source(bundle_bytes())
    await Bundles(tmp_path).ensure(NAME, source.fetch)
    path = tmp_path / bundles.FOLDER / NAME
    path.write_bytes(bundle_bytes()[:1_000])
    await Bundles(tmp_path).ensure(NAME, source.fetch)
    assert source.asked == 2
    assert path.read_bytes() == bundle_bytes()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff" * 100, b'{"format":"another"}'])
async def test_bytes_that_are_no_bundle_are_refused_and_not_kept(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadBundleFetched):
        await Bundles(tmp_path).ensure(sha256(data).hexdigest(), Source(data).fetch)
    assert not (tmp_path / bundles.FOLDER).exists()


async def test_a_bundle_under_anothers_name_is_refused() -> None:
    with pytest.raises(BadBundleFetched, match="has the hash"):
        await Bundles().ensure("0" * 64, Source(bundle_bytes()).fetch)


async def test_a_disk_that_takes_nothing_costs_nobody_anything(tmp_path: Path) -> None:
    (tmp_path / bundles.FOLDER).write_text("no folder")
    found = await Bundles(tmp_path).ensure(NAME, Source(bundle_bytes()).fetch)
    assert found.name == NAME


async def test_few_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MOST_LOADED", 1)
    other = bundle_bytes().replace(b'"contents":"text"', b'"contents":"either"')
    assert other != bundle_bytes()
    found = Bundles()
    await found.ensure(NAME, Source(bundle_bytes()).fetch)
    await found.ensure(sha256(other).hexdigest(), Source(other).fetch)
    assert found.get(NAME) is None
    assert found.get(sha256(other).hexdigest()) is not None
