"""Files that are read at a start, and what is typed at a command: whatever is in them, one error of ours, or none."""

import json
import random
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from controlplane.client.errors import ClientError
from controlplane.client.files import document_load
from engine_agent.backends import engine_config as engine_command
from engine_agent.contracts.wire import Report
from engine_agent.engine.errors import EngineError
from engine_agent.gateway import command as gateway_command
from engine_agent.server.policy_file import read_policy_file
from engine_agent.sidecar import command as agent_command
from engine_agent.sidecar.credentials import FILE, credentials_keep, credentials_read
from engine_agent.sidecar.errors import SidecarError
from engine_agent.sidecar.link import address_check
from engine_agent.sidecar.spool import Spool, SpoolFile
from engine_agent.sidecar.store import Store
from engine_agent.tools.replay import command as replay_command
from tests.engines.snapshots import make_snapshot
from tests.integration.test_gateway_process import SEALING, joined_before
from tests.support.luminet_command import understood
from tests.support.spoiling import hit, spoiled
from tests.web.bad_bodies import ODD_TEXTS

SEED, TIMES = 12, 150


def spoiled_files(path: Path, good: bytes) -> Iterator[int]:
    """The file, spoiled so many times: its bytes, and where it is JSON its values, too."""
    for number in range(TIMES):
        chance = random.Random(f"{SEED} {path.name} {number}")
        try:
            told = json.loads(good) if number % 2 else None
        except ValueError:
            told = None
        path.write_bytes(hit(chance, good) if told is None else json.dumps(spoiled(chance, told)).encode())
        path.chmod(0o600)
        yield number


def refusals(read: Callable[[], object], error: type[Exception], numbers: Iterator[int]) -> int:
    """How many of them were refused, by that error. Any other is a failure."""
    count = 0
    for number in numbers:
        try:
            read()
        except error:
            count += 1
        except Exception as problem:
            raise AssertionError(f"seed {SEED}, case {number}: {problem!r}") from problem
    return count


def test_credentials_of_a_machine_that_joined(tmp_path: Path) -> None:
    joined_before(tmp_path, None)
    path = tmp_path / FILE

    def read() -> None:
        found = credentials_read(tmp_path)
        assert found is not None
        found.command_keys()  # and whatever else a start makes of them
        address_check(found.url, ("127.0.0.1",))
        credentials_keep(tmp_path / "again", found)

    (tmp_path / "again").mkdir()
    assert refusals(read, SidecarError, spoiled_files(path, path.read_bytes())) > TIMES / 2
    assert stat.S_IMODE((tmp_path / "again" / FILE).stat().st_mode) == 0o600


def test_a_snapshot_and_a_ledger_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path, agent="unit-1", key=SEALING)
    store.keep(4, make_snapshot({"one": {}}))
    path = tmp_path / "snapshot"
    for number in spoiled_files(path, path.read_bytes()):
        found = store.read()
        assert found is None or found.generation == 4, number
        path.unlink(missing_ok=True)


def test_a_spool_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    whole = Spool(SpoolFile(path))
    for number in range(5):
        whole.tell([Report("about", {"number": number})], ("boot", number))
    for number in spoiled_files(path, path.read_bytes()):
        spool = Spool(SpoolFile(path))
        assert len(spool) <= 5, number
        spool.tell([Report("about", {"number": 9})])  # and it goes on
        assert len(Spool(SpoolFile(path))) >= 1, number


def test_a_policy_of_an_engine_alone(tmp_path: Path) -> None:
    good = {
        "ttl_seconds": 60,
        "kv_dtype": "fp8",
        "pins": [{"name": "a", "prompt": "x", "expires_at": "2027-01-01T00:00Z"}],
    }
    path = tmp_path / "policy.json"
    assert refusals(lambda: read_policy_file(path), EngineError, spoiled_files(path, json.dumps(good).encode())) > 0
    toml = tmp_path / "policy.toml"
    assert refusals(lambda: read_policy_file(toml), EngineError, spoiled_files(toml, b"ttl_seconds = 60\n")) > 0


CONFIG = b"""
organisations:
  acme: &one
    name: Acme
    namespaces: {chat: {policy: {ttl_seconds: 60, kv_dtype: fp8}}}
  globex: {<<: *one, name: "Globex"}
"""


def test_a_configuration_that_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "luminet.yaml"
    assert refusals(lambda: document_load(str(path)), ClientError, spoiled_files(path, CONFIG)) > 0


def test_a_trace_that_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"timestamp": 0, "input_length": 64, "output_length": 4, "hash_ids": [1, 2, 3, 4], "namespace": "a"}
    good = b"\n".join(json.dumps({**line, "timestamp": number}).encode() for number in range(4))
    path = tmp_path / "trace.jsonl"
    statuses = set()
    for number in spoiled_files(path, good):
        if number < TIMES / 3:
            statuses.add(replay_command.main([str(path), "--block-tokens", "16", "--policy", "none"]))
    said = capsys.readouterr().err
    assert statuses == {0, 1}
    assert "Traceback" not in said


def _engine(arguments: list[str]) -> object:
    return engine_command.main(arguments)


DOORS: Mapping[str, tuple[Callable[[list[str]], object], tuple[str, ...]]] = {
    "luminet": (understood, ("plan", "-f", "x", "get", "orgs", "stats")),
    "gateway": (lambda arguments: gateway_command.parser().parse_args(arguments), ("--port", "1", "--label", "a=b")),
    "agent": (lambda arguments: agent_command.parser().parse_args(arguments), ("--model", "x", "--port", "8101")),
    "replay": (lambda arguments: replay_command.parser().parse_args(arguments), ("x", "--pool", "4k", "--ttl", "5m")),
    "engine": (_engine, ("--model", "x", "--pool", "1GiB", "--port", "1", "--admin-port", "2")),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_typed_at_a_command(door: str, capsys: pytest.CaptureFixture[str]) -> None:
    read, words = DOORS[door]
    statuses = {_status(read, _typed(door, words, number)) for number in range(TIMES)}
    assert statuses <= {0, 1, 2}
    assert "Traceback" not in capsys.readouterr().err


def _typed(door: str, words: Sequence[str], number: int) -> list[str]:
    chance = random.Random(f"{SEED} {door} {number}")
    some = (*words, *words, *ODD_TEXTS, "--help", "-h", "--", "-", "--no-such", "1e999", "9" * 400)
    return [one.replace("\0", "") for one in chance.choices(some, k=chance.randrange(8))]


def _status(read: Callable[[list[str]], object], arguments: list[str]) -> object:
    try:
        read(arguments)
    except SystemExit as ended:
        return ended.code
    return 0
