"""Require a token. For an admin API on loopback, which all users of a machine can reach."""

import hmac
from hashlib import sha256

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

REFUSED = {"error": {"code": "unauthorized", "message": "Send the admin token: authorization: Bearer <token>."}}


class TokenWall:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, sha256(f"Bearer {token}".encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(sha256(authorization).digest(), self._expected):
            await self._app(scope, receive, send)
        else:
            await JSONResponse(REFUSED, 401, {"www-authenticate": "Bearer"})(scope, receive, send)
