"""A sidecar's snapshot with its generation, and its ledger, on disk.

Both are sealed with the agent's own key, which also detects damage, and replaced in one step. A file that cannot be
opened is set aside and logged, and the snapshot is pulled again. An older snapshot must not replace it: keys may have
been revoked since.
"""

import json
import logging
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag

from engine_agent.contracts.protocol import ProtocolError, Snapshot, canonical_json, snapshot_decode, snapshot_encode
from engine_agent.contracts.sealing import seal, unseal
from engine_agent.sidecar.effects import Ledger
from engine_agent.sidecar.spool import replace_file

log = logging.getLogger("luminet.sidecar")
PACK_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Stored:
    generation: int
    snapshot: Snapshot


class Store:
    def __init__(self, folder: Path, *, agent: str, key: bytes) -> None:
        self._snapshot, self._ledger = folder / "snapshot", folder / "ledger"
        self._agent, self._key = agent, key

    def read(self) -> Stored | None:
        plain = self._open(self._snapshot)
        if plain is None:
            return None
        try:
            number, _, message = zlib.decompress(plain).partition(b"\n")
            return Stored(int(number), snapshot_decode(message))
        except (zlib.error, ValueError, ProtocolError) as problem:
            self._set_aside(self._snapshot, str(problem))
            return None

    def keep(self, generation: int, snapshot: Snapshot) -> None:
        message = b"%d\n%s" % (generation, snapshot_encode(snapshot))
        self._write(self._snapshot, zlib.compress(message, PACK_LEVEL))

    def forget(self) -> None:
        """Delete the snapshot, with all the keys in it."""
        self._snapshot.unlink(missing_ok=True)

    def read_ledger(self) -> Ledger:
        plain = self._open(self._ledger)
        try:
            return Ledger() if plain is None else Ledger(**json.loads(plain))
        except (ValueError, TypeError) as problem:
            self._set_aside(self._ledger, str(problem))
            return Ledger()

    def keep_ledger(self, ledger: Ledger) -> None:
        self._write(self._ledger, canonical_json(asdict(ledger)))

    def _write(self, path: Path, plain: bytes) -> None:
        replace_file(path, seal(plain, key=self._key, place=self._place(path)))

    def _open(self, path: Path) -> bytes | None:
        try:
            sealed = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return unseal(sealed, key=self._key, place=self._place(path))
        except (InvalidTag, ValueError):
            self._set_aside(path, "it is damaged, or was sealed with another key")
            return None

    def _place(self, path: Path) -> str:
        return f"{path.name} {self._agent}"

    def _set_aside(self, path: Path, reason: str) -> None:
        damaged = path.with_name(f"{path.name}.damaged")
        path.replace(damaged)
        log.error("%s cannot be used and is now %s: %s", path, damaged.name, reason)
