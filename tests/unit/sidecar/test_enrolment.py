"""Joining: by one process of a folder."""

import asyncio
import base64
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine_agent.sidecar.credentials import Credentials, credentials_keep
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
