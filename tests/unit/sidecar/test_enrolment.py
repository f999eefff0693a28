"""Joining: by one process of a folder."""

import asyncio
import base64
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine_agent.sidecar.credentials import Credentials, credentials_keep, credentials_read
from engine_agent.sidecar.enrolment import Joining, credentials_ensured
from engine_agent.sidecar.errors import BadAddress, BadHome
from engine_agent.sidecar.home import home_lock


def test_nobody_joins_in_a_folder_that_another_has(tmp_path: Path) -> None:
    nobody = Joining("http://127.0.0.1:1", "ljt_x")

    async def joined() -> None:
        async with asyncio.timeout(10):
            await credentials_ensured(tmp_path, nobody, kind="engine", about={})

    with closing(home_lock(tmp_path)), pytest.raises(BadHome, match="another sidecar"):
        asyncio.run(joined())
    assert not (tmp_path / "credentials").exists()


def test_a_host_that_was_named_for_plain_http_need_not_be_named_again(tmp_path: Path) -> None:
    keys = dict.fromkeys(("verifying", "sealing"), base64.b64encode(bytes(32)).decode())
    broker = {"url": "redis://127.0.0.1:1", "prefix": "agent.unit-1:", "queue": "agent.unit-1"}
    kept = Credentials("http://web.invalid", "unit-1", "engine", "default", "lat_x", 1, broker, keys)

    def ensured() -> Credentials:
        return asyncio.run(credentials_ensured(tmp_path, Joining(), kind="engine", about={}))

    credentials_keep(tmp_path, kept)
    with pytest.raises(BadAddress):
        ensured()
    named = replace(kept, plain_http_hosts=("web.invalid",))
    credentials_keep(tmp_path, named)
    assert ensured() == named


def kept_with(broker: str) -> Credentials:
    keys = dict.fromkeys(("verifying", "sealing"), base64.b64encode(bytes(32)).decode())
    told = {"url": broker, "prefix": "agent.unit-1:", "queue": "agent.unit-1"}
    return Credentials("http://127.0.0.1:1", "unit-1", "engine", "default", "lat_x", 1, told, keys)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("redis://redis:6379/0", "redis://login:pass%2Fword@redis:6379/0"),
        (
            "rediss://[::1]:6380/1?ssl_check_hostname=false",
            "rediss://login:pass%2Fword@[::1]:6380/1?ssl_check_hostname=false",
        ),
    ],
)
def test_a_machine_may_reach_the_broker_its_own_way_and_signs_in_as_told(tmp_path: Path, place: str, url: str) -> None:
    kept = kept_with("rediss://login:pass%2Fword@broker.example.com:6380/0?ssl_cert_reqs=required")
    credentials_keep(tmp_path, kept)
    found = asyncio.run(credentials_ensured(tmp_path, Joining(broker=place), kind="engine", about={}))
    assert found.broker == {**kept.broker, "url": url}
    assert credentials_read(tmp_path) == kept, "what the control plane said is kept as it said it"


@pytest.mark.parametrize("place", ["broker:6380", "http://broker:6380", "redis://", "redis://me:hush@broker:6379/0"])
def test_what_is_no_place_of_a_broker_is_refused_without_telling_its_login(tmp_path: Path, place: str) -> None:
    credentials_keep(tmp_path, kept_with("redis://login:word@broker:6379/0"))
    with pytest.raises(BadAddress, match="--broker") as refused:
        asyncio.run(credentials_ensured(tmp_path, Joining(broker=place), kind="engine", about={}))
    assert "hush" not in str(refused.value)
