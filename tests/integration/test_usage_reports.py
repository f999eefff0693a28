"""What a real engine counted reaches the control plane once, whatever of the agent is killed on the way."""

import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.identity import HEADER, Identity, sign
from tests.engines.processes import Engine, engine, state_folder
from tests.engines.snapshots import make_snapshot
from tests.fleet.control_planes import AGENT, ControlPlane, control_plane, sidecar

SECRET = "0123456789abcdef0123456789abcdef"
POLICIES: dict[str, Any] = {"one": {"ttl_seconds": 600, "kv_dtype": "fp8", "request_kv_dtypes": ["int4"]}}
PROMPT = list(range(100, 180))  # five blocks
COUNTED = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")


@dataclass
class Site:
    """An engine whose clock somebody set, and who asks it. `said`: what its answers' headers came to."""

    plane: ControlPlane
    state: Path
    home: Path
    running: Engine
    said: Counter[str] = field(default_factory=Counter)
    streams: list[HTTPConnection] = field(default_factory=list)

    @property
    def arguments(self) -> tuple[str, ...]:
        return "--engine-state", str(self.state), "--port", "8101", "--address", "http://127.0.0.1:8101"

    def ask(self, first: int) -> None:
        body = {"model": "demo", "prompt": [first, *PROMPT], "max_tokens": 3}
        answer = self.running.ask("POST", "/v1/completions", body, **{HEADER: self._identity()})
        assert answer.status == 200, answer.body
        generated = answer.json["usage"]["completion_tokens"]
        self.said.update({"requests": 1, **_said(answer.headers), "generated_tokens": generated})

    def begin(self, first: int) -> Mapping[str, str]:
        """The headers of a stream that has not ended."""
        body = {"model": "demo", "prompt": [first, *PROMPT], "max_tokens": 300, "stream": True, "ignore_eos": True}
        connection = HTTPConnection("127.0.0.1", self.running.port, timeout=60)
        named = {"content-type": "application/json", HEADER: self._identity()}
        connection.request("POST", "/v1/completions", json.dumps(body).encode(), named)
        response = connection.getresponse()
        assert response.status == 200
        self.streams.append(connection)
        return {name.lower(): value for name, value in response.getheaders()}

    def _identity(self) -> str:
        now = self.plane.now()
        known = Identity(
            organisation_id="one",
            organisation="one",
            namespace_id="one",
            namespace="one",
            scope="infer",
            policy_revision=1,
            request_id=uuid.uuid4().hex,
            attempt=1,
            kind="customer",
            deadline=None,
            issued_at=now,
            expires_at=now + 30,
            audience=AGENT,
        )
        return sign(known, SECRET.encode())

    def until_told(self) -> list[Mapping[str, Any]]:
        """All that was said, to the token."""

        def is_all() -> Any:
            return told_of(self.plane) == self.said or None

        self.plane.until(is_all, f"usage of {self.said}, {told_of(self.plane)} so far")
        return self.plane.told("usage")


def _said(headers: Mapping[str, str]) -> dict[str, int]:
    return {name: int(headers[f"x-luminet-{name.replace('_', '-')}"]) for name in ("prompt_tokens", "cached_tokens")}


def told_of(plane: ControlPlane) -> Counter[str]:
    sums: Counter[str] = Counter()
    for report in plane.told("usage"):
        for row in report["rows"]:
            sums.update({name: row["counts"].get(name, 0) for name in COUNTED})
    return +sums


def engine_arguments(state: Path) -> tuple[str, ...]:
    secret = state.parent / "identity"
    secret.write_text(SECRET)
    return "--agent-id", AGENT, "--identity-secret-file", str(secret)


@pytest.fixture
def site(redis_server: str, tmp_path: Path) -> Iterator[Site]:
    with control_plane(redis_server, ahead_seconds=3_600.0) as plane, state_folder() as state:
        state.mkdir(parents=True)
        plane.want(1, make_snapshot(POLICIES))
        with engine(*engine_arguments(state), state=state) as running:
            site = Site(plane, state, tmp_path / "agent", running)
            yield site
            for one in site.streams:
                one.close()


def test_what_headers_said_is_told_to_the_token_in_the_control_planes_time(site: Site) -> None:
    with sidecar(site.plane, site.home, *site.arguments) as agent:
        site.plane.ready(1)
        for number in (1, 1, 2):
            site.ask(number)
        reports = site.until_told()
        assert {row["kind"] for one in reports for row in one["rows"]} == {"customer"}
        minutes = {row["minute"] for one in reports for row in one["rows"]}
        assert all(abs(minute - site.plane.now()) < 180 for minute in minutes), "though its machine is an hour behind"
        totals = next(one["totals"]["one"] for one in reversed(reports) if "one" in one["totals"])
        assert totals == [site.said[name] for name in COUNTED[:3]]
        levels = site.plane.until(lambda: site.plane.told("levels"), "levels")
        assert levels[-1]["pool"]["capacity_bytes"] > 0
        gaps = site.plane.until(lambda: site.plane.told("gaps"), "curves")
        assert len(gaps[-1]["namespaces"]["one"]["curves"]) == 6
        assert agent.stop() == 0


def test_a_sidecar_killed_while_nobody_listens_tells_all_of_it_once(site: Site) -> None:
    plane = site.plane
    with sidecar(plane, site.home, *site.arguments) as agent:
        plane.ready(1)
        site.ask(1)
        site.until_told()
        plane.is_away = True
        for number in range(4):
            site.ask(number)
        before = plane.requests.count("POST /agent/v1/reports")
        plane.until(lambda: plane.requests.count("POST /agent/v1/reports") > before + 1, "attempts in vain")
        agent.kill()
    site.ask(7)
    with sidecar(plane, site.home, *site.arguments):
        plane.is_away = False
        site.until_told()


def test_an_engine_killed_with_an_open_stream_tells_of_it_when_the_next_one_runs(site: Site) -> None:
    plane = site.plane
    with sidecar(plane, site.home, *site.arguments):
        plane.ready(1)
        site.ask(1)
        site.until_told()
        headers = site.begin(1)
        os.kill(site.running.process.pid, signal.SIGKILL)
        site.said.update({"requests": 1, **_said(headers)})
        site.running.process.wait()
        with engine(*engine_arguments(site.state), state=site.state) as running:
            site.running = running
            reports = site.until_told()
            cut_off = sum(row["counts"].get("cut_off", 0) for one in reports for row in one["rows"])
            assert cut_off == 1
            assert json.loads((site.home / "clock").read_text())["offset_seconds"] > 3_000
