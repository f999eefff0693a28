"""The OpenAI face over a scripted backend, with a real journal, asked as uvicorn would ask."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from engine_agent.journal.journal import Journal
from engine_agent.server.app import OpenAiApp, openai_app
from engine_agent.server.guard import KeyGuard
from engine_agent.server.limits import Limits
from tests.unit.server.asking import Asker
from tests.unit.server.identities import KEY, LOCAL
from tests.unit.server.scripted import CARD, ByteText, PlainTemplate, ScriptedBackend

LIMITS = Limits(
    body_bytes=Limits.of(CARD, ByteText()).body_bytes,
    held_bytes=2**21,
    receive_seconds=0.2,
    write_seconds=0.2,
    stats_seconds=0.1,
)


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open(tmp_path / "journal", "boot-1", most_bytes=2**22)
    yield journal
    journal.close()


@pytest.fixture
def guard() -> KeyGuard:
    return KeyGuard(sha256(KEY.encode()).digest(), LOCAL)


@pytest.fixture
def app(backend: ScriptedBackend, journal: Journal, guard: KeyGuard) -> OpenAiApp:
    return openai_app(backend, ByteText(), PlainTemplate(), journal, guard, agent_id="agent-1", limits=LIMITS)


@pytest.fixture
def asker(app: OpenAiApp) -> Asker:
    return Asker(app, {"authorization": f"Bearer {KEY}"})
