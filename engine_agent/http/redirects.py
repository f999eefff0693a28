"""One question over urllib: asked of whom it is addressed to, and of nobody else."""

from typing import Any
from urllib.request import HTTPRedirectHandler


class Stays(HTTPRedirectHandler):
    """Somebody who leads elsewhere is not who was asked, and no token travels on: a redirect is an HTTPError."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
