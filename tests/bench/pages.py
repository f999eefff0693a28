"""Pages over one kept-alive connection, as a browser asks for them but without its own time."""

import gzip
import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from types import TracebackType
from urllib.parse import urlencode, urlsplit

TIMEOUT_SECONDS = 60  # of a machine that has other work; what is measured is measured elsewhere
TOKEN = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


class NotAnswered(Exception):
    """The page did not come as it should; the text says what came instead."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`wire_bytes`: of the body as it came, packed where the server packs it."""

    content: bytes
    wire_bytes: int


class Pages:
    def __init__(self, address: str, cookies: Mapping[str, str] | None = None) -> None:
        self.cookies: dict[str, str] = dict(cookies or {})
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> "Pages":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._connection.close()

    def load(self, path: str) -> bytes:
        """The page, or NotAnswered for anything but a 200: a redirect to the sign-in page is quick, and no page."""
        return self.fetch(path).content

    def fetch(self, path: str) -> Fetched:
        return self._ask("GET", path, expected=200)

    def sign_in(self, email: str, password: str) -> None:
        found = TOKEN.search(self.load("/sign-in"))
        if found is None:
            raise NotAnswered("/sign-in: its form has no token")
        form = {"csrfmiddlewaretoken": found[1].decode(), "email": email, "password": password}
        self._ask("POST", "/sign-in", expected=302, body=urlencode(form))

    def _ask(self, method: str, path: str, *, expected: int, body: str | None = None) -> Fetched:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Cookie": cookies, "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            content = came = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
        except http.client.HTTPException as error:
            self._connection.close()  # the next question opens it anew
            raise NotAnswered(f"{method} {path}: {type(error).__name__}") from error
        for line in answer.headers.get_all("Set-Cookie", []):
            self.cookies.update({name: morsel.value for name, morsel in SimpleCookie(line).items()})
        if answer.status != expected:
            raise NotAnswered(f"{method} {path}: expected status {expected}, found {answer.status}")
        return Fetched(content, len(came))
