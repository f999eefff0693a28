"""A web process of its own on the tests' database and Redis, and sockets to speak to it byte by byte."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from controlplane.common.health import web_check
from tests.fleet.fleets import Part
from tests.support.ports import free_port

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WebProcess:
    port: int
    part: Part

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def exchange(self, *parts: bytes) -> bytes:
        """Everything it answers until it closes the connection; it may do so before it has read all."""
        with self.connect() as caller:
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    caller.sendall(part)
            return read_all(caller)


def read_all(caller: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionError):
        while received := caller.recv(65_536):
            answer += received
    return answer


@contextlib.contextmanager
def web_process(folder: Path, **settings: str) -> Iterator[WebProcess]:
    """`settings`: of its environment, beside those that the tests have. Wants pytest-django's database."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server, _, _ = os.environ["LUMINET_DATABASE_URL"].rpartition("/")
    environment = {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings.django",
        "LUMINET_DATABASE_URL": f"{server}/{connection.settings_dict['NAME']}",
        "LUMINET_WEB_PORT": str(port),
        "LUMINET_BASE_URL": url,
        **settings,
    }
    environment = {name: value for name, value in os.environ.items() if name.startswith("LUMINET_")} | environment
    command = (sys.executable, "-m", "controlplane.cli", "run", "web")
    part = Part("web", command, environment, folder / "web.log", lambda: web_check(url, path="/healthz"))
    part.start()
    try:
        yield WebProcess(port, part)
    finally:
        part.stop()
