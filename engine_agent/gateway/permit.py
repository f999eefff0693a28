"""One request's authorization under the current snapshot: its caller, and the engines that may serve it.

Both are decided once the body has arrived, and again before each attempt: while the request waited, its key may have
been revoked, its organisation suspended, or an engine drained or lost. If nothing has changed, the check costs nothing.
"""

from collections.abc import Callable

from engine_agent.gateway.held import Held
from engine_agent.gateway.keys import Caller
from engine_agent.gateway.refusals import revoked
from engine_agent.gateway.route import Decided, Groups
from engine_agent.gateway.tables import Tables

Recognise = Callable[[Tables], Caller]  # authenticates the request; raises ApiError
Route = Callable[[Tables, Caller, Decided], Groups]  # raises ApiError


class Permit:
    """The authorization of a request by `caller`, under `tables`. Raises ApiError if no engine may serve it."""

    def __init__(
        self,
        state: Held,
        tables: Tables,
        caller: Caller,
        *,
        recognise: Recognise,
        route: Route,
        now: Callable[[], float],
    ) -> None:
        self._held, self._recognise, self._route, self._now = state, recognise, route, now
        self._decided: Decided = {}  # a split counts each request once, however often it is routed
        self._known_in = self._routed_in = tables
        self.caller = caller
        self.groups = route(tables, caller, self._decided)

    def check(self) -> None:
        """Raise ApiError if the caller may no longer send requests, or this gateway may no longer serve them."""
        if self._held.is_revoked:
            raise revoked()
        tables = self._held.tables
        if tables is not self._known_in or self.caller.has_expired(self._now()):
            self.caller, self._known_in = self._recognise(tables), tables

    def renew(self) -> None:
        """Check the request again, and update `groups` to the current engines."""
        self.check()
        if self._routed_in is not self._known_in:
            self.groups = self._route(self._known_in, self.caller, self._decided)
            self._routed_in = self._known_in
