"""A handler for urllib that follows no redirects."""

from typing import Any
from urllib.request import HTTPRedirectHandler


class Stays(HTTPRedirectHandler):
    """Turns a redirect into an HTTPError: its target is not the addressed server, and must not get the token."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
