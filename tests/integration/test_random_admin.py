"""Whatever is asked of an engine's admin face, it makes no mistake of its own, and nothing of it stays."""

import json
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from engine_agent.process.config import CHECKOUT
from tests.engines.processes import Engine, engine, state_folder
from tests.support.spoiling import hit, spoiled
from tests.support.waiting import wait_until

SEED, TIMES = 12, 60
GOLDEN = CHECKOUT / "tests" / "contract" / "golden" / "snapshot-engine.json"
ASKED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/pins", {"name": "a", "prompt": "Hello", "expires_at": "2036-01-01T00:00:00Z"}),
    ("POST", "/journal/cut", {"boot": "x", "upto": 1}),
    ("PUT", "/clock", {"offset_seconds": 1.5}),
    ("PUT", "/pins/x/content", {"token_ids": [1, 2, 3]}),
    ("POST", "/apply", json.loads(GOLDEN.read_bytes())),
)


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Engine, Engine]]:
    """One alone, and one of a fleet: each takes what the other refuses."""
    with state_folder() as alone, state_folder() as fleet:
        fleet.mkdir()
        secret = fleet.parent / "identity-secret"
        secret.write_bytes(b"the-secret-that-gateways-and-engines-share")
        options = ("--identity-secret-file", str(secret), "--agent-id", "agent-1")
        with engine(state=alone) as one, engine(*options, state=fleet) as other:
            yield one, other


@pytest.mark.parametrize(("method", "path", "good"), ASKED, ids=[path for _, path, _ in ASKED])
def test_whatever_is_asked_of_it_it_makes_no_mistake_of_its_own(
    engines: tuple[Engine, Engine], method: str, path: str, good: Any
) -> None:
    for number in range(TIMES):
        chance = random.Random(f"{SEED} {path} {number}")
        whole = json.dumps(good).encode()
        body = hit(chance, whole) if number % 3 == 0 else json.dumps(spoiled(chance, good)).encode()
        for one in engines:
            answer = one.admin(method, path, raw=body)
            assert answer.status < 500, f"seed {SEED}, case {number}: {body[:300]!r} {answer.body[:300]!r}"
            assert b"Traceback" not in answer.body


def test_afterwards_it_generates_and_nothing_is_stuck(engines: tuple[Engine, Engine]) -> None:
    for one in engines:
        assert one.admin("PUT", "/clock", {"offset_seconds": 0}).status == 204
        for pin in one.admin("GET", "/pins").json["pins"]:
            one.admin("DELETE", f"/pins/{pin['id']}")
        assert one.admin("GET", "/health").status == 200
        wait_until(partial(_is_idle, one))
        assert one.admin("POST", "/resume").json == {"is_draining": False, "left": 0}
        assert one.admin("POST", "/integrity").json == {"problems": []}
        assert one.process.poll() is None
        assert not [line for line in one.logged if "Traceback" in line]


def _is_idle(one: Engine) -> bool:
    return bool(one.admin("POST", "/drain").json["left"] == 0)
