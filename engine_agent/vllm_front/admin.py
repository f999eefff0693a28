"""`/luminet/…` of vLLM's own server: policies, purges and statistics, for operators with the admin secret."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine_agent.contracts.protocol import HashMismatch, MalformedMessage
from engine_agent.engine.errors import RejectedSnapshot, RequestError
from engine_agent.http.errors import ApiError, invalid
from engine_agent.http.strict_json import read_object
from engine_agent.server.errors import api_error
from engine_agent.vllm_front.whose import bearer, unknown

MOST_BODY_BYTES = 64 * 2**20
Engine = Callable[..., Awaitable[Any]]


class AdminRoutes:
    def __init__(self, engine: Engine, secret: Callable[[], bytes | None]) -> None:
        """Create the routes. `engine` calls the engine between two of its steps."""
        self._engine, self._secret = engine, secret

    @property
    def routes(self) -> Mapping[tuple[str, str], Callable[[Request], Awaitable[Response]]]:
        return {
            ("PUT", "/luminet/policies"): self._told(self._policies),
            ("POST", "/luminet/purge"): self._told(self._purge),
            ("GET", "/luminet/stats"): self._told(self._stats),
        }

    async def _policies(self, request: Request) -> Mapping[str, Any]:
        """Replace all namespaces: by a snapshot or a change as agents get them, or by policies with their names."""
        body = await _body(request)
        fields = read_object(body)
        if "namespaces" not in fields:
            return await self._obeyed("apply", body)
        if fields.keys() != {"namespaces"} or not isinstance(fields["namespaces"], dict):
            raise invalid("namespaces", 'the body must be {"namespaces": {name: policy}} or a snapshot')
        return await self._obeyed("govern", fields["namespaces"])

    async def _purge(self, request: Request) -> Mapping[str, Any]:
        body = await _body(request)
        names = (read_object(body) if body else {}).get("namespaces", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise invalid("namespaces", "must be a list of names; none for all of them")
        return await self._obeyed("purge", names)

    async def _stats(self, request: Request) -> Mapping[str, Any]:
        return dict(await self._engine("stats"))

    async def _obeyed(self, verb: str, argument: Any) -> Mapping[str, Any]:
        snapshot_hash = await self._engine(verb, argument)
        return {"hash": snapshot_hash, "receipts": await self._engine("receipts")}

    def _told(
        self, endpoint: Callable[[Request], Awaitable[Mapping[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                self._check(request)
                return JSONResponse(await endpoint(request))
            except (ApiError, RequestError, RejectedSnapshot, MalformedMessage, HashMismatch) as problem:
                error = _error(problem)
                return JSONResponse(error.body, error.status, headers=dict(error.headers))

        return answered

    def _check(self, request: Request) -> None:
        secret = self._secret()
        if secret is None:
            raise ApiError(403, "No admin_secret_file is configured, so nobody may do this.", code="no_admin")
        token = bearer(request.headers).encode("latin-1")
        if not hmac.compare_digest(sha256(token).digest(), sha256(secret).digest()):
            raise unknown(
                "This is for the operator: send the admin secret in the header authorization: Bearer <secret>."
            )


def _error(problem: Exception) -> ApiError:
    match problem:
        case ApiError():
            return problem
        case HashMismatch():
            return ApiError(409, str(problem), code="hash_mismatch")
        case RejectedSnapshot():
            return ApiError(422, str(problem), param=problem.entry, code="rejected")
        case MalformedMessage():
            return invalid(problem.field, problem.problem, "malformed")
        case RequestError():
            return api_error(problem, {})
    raise problem


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ApiError(413, f"A body of more than {MOST_BODY_BYTES:,} bytes is not taken.", code="too_large")
    return bytes(body)
