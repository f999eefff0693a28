"""An engine alone decides for itself: which policy it obeys, and which revision that is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.protocol import Change, Snapshot
from engine_agent.engine.errors import RejectedSnapshot
from engine_agent.server.alone import LocalTenants
from engine_agent.server.policy_file import PolicyFile
from engine_agent.server.state import StateFolder
from tests.unit.server.scripted import ByteText, ScriptedBackend


class ObeyingBackend(ScriptedBackend):
    """Notes what it was told to obey, revision by revision, unless it cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.obeyed: list[tuple[int, Any]] = []
        self.is_refusing = False

    async def apply(self, change: Snapshot | Change) -> str:
        assert isinstance(change, Snapshot)
        if self.is_refusing:
            raise RejectedSnapshot("ns/default.policy", "cannot be obeyed")
        namespace = change.entries["ns/default"]
        self.obeyed.append((namespace["revision"], dict(change.policies[namespace["policy"]])))
        return change.hash


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFolder]:
    state = StateFolder(tmp_path / "state")
    yield state
    state.close()


def tenants(state: StateFolder, backend: ObeyingBackend) -> LocalTenants:
    return LocalTenants(state, backend, ByteText(), None)


def policy(seconds: int) -> PolicyFile:
    return PolicyFile({"ttl_seconds": seconds})


async def test_no_revision_ever_means_two_policies_whatever_fails(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, the engine cannot obey, it is started again."""
    backend = ObeyingBackend()
    first = tenants(state, backend)
    assert await first.publish(policy(1)) == 1
    with monkeypatch.context() as patched:
        patched.setattr("engine_agent.contracts.files.os.fsync", _full)
        with pytest.raises(OSError, match="no space"):
            await first.publish(policy(2))
    assert first.revision == 1
    again = tenants(state, backend)
    assert await again.publish(policy(3)) == 2
    backend.is_refusing = True
    with pytest.raises(RejectedSnapshot):
        await again.publish(policy(4))
    backend.is_refusing = False
    assert again.revision == 2
    await tenants(state, backend).publish(policy(5))
    assert len({revision for revision, _ in backend.obeyed}) == len(backend.obeyed)


def _full(file: int) -> None:
    raise OSError(28, "no space is left")


async def test_the_same_policy_keeps_its_revision_over_a_restart(state: StateFolder) -> None:
    backend = ObeyingBackend()
    for _ in range(2):
        assert await tenants(state, backend).publish(policy(1)) == 1
