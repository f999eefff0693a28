"""The REST API over one kept-alive connection, as a program asks for it."""

import http.client
import json
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.bench.pages import NotAnswered

TIMEOUT_SECONDS = 60


class Rest:
    """Paths are below /api/v1. What does not answer with a success raises, with the problem it named."""

    def __init__(self, address: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "If-Match": "*"}

    def __enter__(self) -> "Rest":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, f"/api/v1{path}", content, self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if not 200 <= answer.status < 300:
            raise NotAnswered(f"{method} {path}: status {answer.status}, {said[:500].decode(errors='replace')}")
        return json.loads(said) if said else None
