"""What one request may do, by what is held now: whose it is, and where it may go.

Judged when its body is there, and again whenever it comes to an engine: while it waited its key may have been revoked,
its organisation suspended, an engine drained or lost. Where nothing has changed, to find that out costs nothing.
"""

from collections.abc import Callable

from engine_agent.gateway.held import Held
from engine_agent.gateway.keys import Caller
from engine_agent.gateway.refusals import revoked
from engine_agent.gateway.route import Decided, Groups
from engine_agent.gateway.tables import Tables

Recognise = Callable[[Tables], Caller]  # by what came with the request; raises ApiError
Route = Callable[[Tables, Caller, Decided], Groups]  # raises ApiError


class Permit:
    """`caller`, as recognised in these `tables`. Raises ApiError where such a request can go nowhere."""

    def __init__(
        self,
        held: Held,
        tables: Tables,
        caller: Caller,
        *,
        recognise: Recognise,
        route: Route,
        now: Callable[[], float],
    ) -> None:
        self._held, self._recognise, self._route, self._now = held, recognise, route, now
        self._decided: Decided = {}  # a split counts each request once, however often it is looked at
        self._known_in = self._routed_in = tables
        self.caller = caller
        self.groups = route(tables, caller, self._decided)

    def check(self) -> None:
        """Raises ApiError when whoever sent it may not any more, or this gateway may not."""
        if self._held.is_revoked:
            raise revoked()
        tables = self._held.tables
        if tables is not self._known_in or self.caller.has_expired(self._now()):
            self.caller, self._known_in = self._recognise(tables), tables

    def renew(self) -> None:
        """The same, and `groups` are those of now."""
        self.check()
        if self._routed_in is not self._known_in:
            self.groups = self._route(self._known_in, self.caller, self._decided)
            self._routed_in = self._known_in
