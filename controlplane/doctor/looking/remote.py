"""A control plane far away, by its REST API, as whoever the token speaks for may read it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controlplane.client.errors import ClientError, Refused
from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped
from controlplane.doctor.finding import Finding, NotExamined, broken, ok
from controlplane.doctor.judging import fleet, numbers

SECONDS = 3.0
DO = "see the log of its worker, and luminet doctor where the control plane runs"
AN_AGENT = {"id": str, "kind": str, "state": str, "in_sync": bool}
A_ROLLOUT = {"id": str, "place": str, "revision": int, "state": str, "why": str, "bake_seconds": int}
A_CALLER = {"kind": str, "name": str, "scopes": [str]}


@dataclass(frozen=True, slots=True)
class Remote:
    url: str
    token: str

    def rest(self) -> Rest:
        """One for each check, which has a thread of its own. What fails is not tried again: somebody waits."""
        return Rest(self.url, self.token, timeout=SECONDS, sleep=lambda _: None)


def caller_see(remote: Remote) -> Mapping[str, Any]:
    found: Mapping[str, Any] = shaped(remote.rest().get("/whoami").body, A_CALLER)
    return found


def caller(find: Callable[[], Mapping[str, Any]]) -> Iterator[Finding]:
    try:
        told = find()
    except Refused as refused:
        if refused.status != 401:
            raise
        do = "set LUMINET_TOKEN to an operator's token (luminet operator-token EMAIL, where the control plane runs)"
        yield broken("token", "The control plane does not know this token", do)
        return
    scopes = ", ".join(told["scopes"])
    organisation = told.get("organisation")
    whose = "an operator's" if organisation is None else f"the organisation {organisation}'s"
    yield ok("token", f"The token is {whose}, {told['name']} ({scopes})")


def their_version(remote: Remote) -> str:
    """By its own description of its API."""
    found: str = shaped(remote.rest().get("/openapi.json").body, {"info": {"version": str}})["info"]["version"]
    return found


def agents(remote: Remote) -> Iterator[Finding]:
    with _allowed():
        views = [shaped(one, AN_AGENT) for one in remote.rest().pages("/fleet/agents")]
        yield from fleet.agents(views)
        yield from fleet.enforcement(views)


def rollouts(remote: Remote) -> Iterator[Finding]:
    with _allowed():
        found = [shaped(one, A_ROLLOUT) for one in _open_rollouts(remote)]
        yield from fleet.rollouts(found, now=datetime.now(UTC))


def _open_rollouts(remote: Remote) -> Iterator[Any]:
    for state in ("running", "paused"):
        yield from remote.rest().pages("/rollouts", state=state)


def join_tokens(remote: Remote) -> Iterator[Finding]:
    with _allowed():
        yield from fleet.join_tokens([*remote.rest().pages("/fleet/join-tokens")], now=datetime.now(UTC))


def alerts(remote: Remote) -> Iterator[Finding]:
    with _allowed():
        yield from fleet.alerts([*remote.rest().pages("/alerts", state="firing")], now=datetime.now(UTC))


def reconciliation(remote: Remote) -> Iterator[Finding]:
    with _allowed():
        told = shaped(remote.rest().get("/fleet/reconciliation").body, {"compared": dict, "differences": list})
        yield from numbers.reconciliation(told, now=datetime.now(UTC), do=DO)


class _allowed:  # noqa: N801 (used as a word: with _allowed())
    """What a token may not read is not examined, and no mistake."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused) and error.status == 401:
            raise NotExamined("the token is not known") from None
        if isinstance(error, Refused) and error.status in (403, 404):
            raise NotExamined("this token may not read it; an operator's may") from None
        if isinstance(error, ClientError):
            raise NotExamined(str(error).splitlines()[0]) from None
