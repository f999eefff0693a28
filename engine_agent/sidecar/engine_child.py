"""Start an agent's engine, and restart it whenever it ends.

An engine left behind by a killed sidecar keeps serving; this module finds it by its admin socket and supervises it too.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from engine_agent.process.last_words import ended_by, last_words_take
from engine_agent.process.version import luminet_version
from engine_agent.sidecar.spool import replace_file

log = logging.getLogger("luminet.sidecar")
RESTART_SECONDS = (0.5, 30.0)
DIGEST_FILE = "started-with"
WELL_SECONDS = 30.0  # an engine that ran for so long is restarted at once
LOOK_SECONDS = 0.5
STOP_SECONDS = 40.0  # an engine finishes its running requests first, for 30 s by default
_PEER = struct.Struct("3i")


class EngineChild:
    """A supervisor of one engine process.

    It calls `tell` with the reason why the engine does not answer; `has_answered` returns whether the engine has
    answered since. A digest beside the socket covers the command, `secret` and this code's version. An engine left
    behind with another digest is ended and replaced.
    """

    def __init__(
        self,
        command: Sequence[str],
        admin_socket: Path,
        *,
        secret: bytes = b"",
        tell: Callable[[str], None] = lambda reason: None,
        has_answered: Callable[[], bool] = lambda: True,
    ) -> None:
        self._command, self._socket, self._tell, self._has_answered = command, admin_socket, tell, has_answered
        self._digest_file = admin_socket.with_name(DIGEST_FILE)
        self._digest = sha256("\0".join([luminet_version(), *command]).encode() + b"\0\0" + secret).hexdigest().encode()

    async def run(self, until: asyncio.Event) -> None:
        """Keep an engine running until the event is set, then end it and wait until it is gone."""
        wait, longest = RESTART_SECONDS
        self._tell("the engine is being started")
        while not until.is_set():
            began = time.monotonic()
            if (pid := peer_of(self._socket)) is not None:
                await self._found(pid, until)
                continue
            replace_file(self._digest_file, self._digest)
            last_words_take(self._socket.parent)  # discard the exit reason of an earlier, unsupervised engine
            status = await self._child(until)
            if until.is_set():
                return
            # An engine that took long to fail never answered, so its next start must wait as well.
            was_well = self._has_answered() and time.monotonic() - began > WELL_SECONDS
            wait = RESTART_SECONDS[0] if was_well else wait
            reason = last_words_take(self._socket.parent)
            message = f"the engine {ended_by(status)} and is started again after {wait:g} s{reason and f': {reason}'}"
            self._tell(message)
            log.error(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), wait)
            wait = min(longest, wait * 2)

    async def _found(self, pid: int, until: asyncio.Event) -> None:
        if self._is_as_asked():
            log.info("an engine runs already, as process %d", pid)
            await self._look_after(pid, until)
        else:
            log.warning("the engine that runs as process %d was started with something else, and is ended", pid)
            self._tell("another engine is ended")
            await _end(pid, self._socket)

    def _is_as_asked(self) -> bool:
        try:
            return self._digest_file.read_bytes() == self._digest
        except OSError:
            return False

    async def _child(self, until: asyncio.Event) -> int:
        # A new session: a terminal's Ctrl-C reaches only the sidecar, which then stops the engine in order.
        child = await asyncio.create_subprocess_exec(*self._command, start_new_session=True)
        ended, stopped = asyncio.create_task(child.wait()), asyncio.create_task(until.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if child.returncode is None and until.is_set():
                child.terminate()
        try:
            return await asyncio.wait_for(ended, STOP_SECONDS) if until.is_set() else await ended
        except TimeoutError:
            child.kill()
            return await child.wait()

    async def _look_after(self, pid: int, until: asyncio.Event) -> None:
        while peer_of(self._socket) == pid:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), LOOK_SECONDS)
            if until.is_set():
                await _end(pid, self._socket)
                return


async def _end(pid: int, admin_socket: Path) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while peer_of(admin_socket) == pid and time.monotonic() < deadline:  # noqa: ASYNC110 (somebody else's child)
            await asyncio.sleep(LOOK_SECONDS / 5)


def peer_of(path: Path) -> int | None:
    """Return the process id of a socket's listener, or None if no process listens."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(os.fspath(path))
        except OSError:
            return None
        if not hasattr(socket, "SO_PEERCRED"):
            return None
        pid, _, _ = _PEER.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return int(pid)


def options_check(command: Sequence[str]) -> list[str]:
    """Return the command that only checks an engine's options; it exits with 1 if they are invalid."""
    executable, module, _, *options = command
    return [executable, module, "engine_agent.backends.engine_config", *options]


def engine_command(
    *, model: Path, port: int, state: Path, agent: str, secret: Path, others: Sequence[str]
) -> list[str]:
    own = ["--model", str(model), "--port", str(port), "--state", str(state), "--agent-id", agent]
    return [sys.executable, "-m", "engine_agent.server.command", *own, "--identity-secret-file", str(secret), *others]
