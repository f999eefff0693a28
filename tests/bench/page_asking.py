"""Every page of the web UI with what row W1's database holds: where it is, for whom, what it costs the server.

For the database of a stack: tests/bench/inside.py calls `every_page` there, then `measure`. Pages come from
tests/web/dashboard_pages.py, where a page that is missing fails the build: so none can be left out here.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse

from tenants.models import Member, PolicyLevel, User
from tests.bench.tenants import BIG
from tests.web.dashboard_pages import NOWHERE, PAGES, Page

WARM: Final = 2
OPERATOR, CUSTOMER, STRANGER = "operator", "customer", "nobody"
WHO: Final = {"everybody": (OPERATOR, CUSTOMER), "members": (CUSTOMER,), "operators": (OPERATOR,)}
ORGANISATION: Final = "acme"  # as the list calls it; here the largest there is
OF_ANOTHER: Final = {"published": "rollout", "rollout-now": "rollout", "operation-now": "operation"}
CHECKS: Final = {
    "fleet-policy-check": OPERATOR,
    "organisation-policy-check": CUSTOMER,
    "namespace-policy-check": CUSTOMER,
}


@dataclass(frozen=True, slots=True)
class Ask:
    """`is_draft`: a changed policy is sent, and its preview comes back."""

    name: str
    who: str
    path: str
    is_document: bool
    is_draft: bool = False


def every_page(named: Mapping[str, str]) -> dict[str, Any]:
    """Which there are, and a cookie of each who looks at them."""
    return {
        "pages": [asdict(one) for one in asks(named)],
        "cookies": {who: _cookie(client) for who, client in _clients().items() if who != STRANGER},
    }


def asks(named: Mapping[str, str]) -> list[Ask]:
    return [one for page in PAGES if page.kind != "deed" for one in _asks(page, named)]


def _asks(page: Page, named: Mapping[str, str]) -> Iterator[Ask]:
    path, is_document = reverse(page.view, args=_arguments(page, named)), page.kind == "page"
    everybody = WHO.get(page.audience, (STRANGER,))
    for who in everybody:
        yield Ask(page.view if len(everybody) == 1 else f"{page.view}, {who}", who, path, is_document)
    if page.view in CHECKS:
        yield Ask(f"{page.view}, a draft", CHECKS[page.view], path, False, True)


def _arguments(page: Page, named: Mapping[str, str]) -> list[str]:
    meant = {ORGANISATION: BIG}
    if NOWHERE in page.arguments:
        meant[NOWHERE] = named[OF_ANOTHER.get(page.view, page.view)]
    return [meant.get(one, one) for one in page.arguments]


def _clients() -> dict[str, Client]:
    found = {STRANGER: Client(), OPERATOR: Client(), CUSTOMER: Client()}
    found[OPERATOR].force_login(User.objects.filter(is_operator=True).order_by("pk")[0])
    admin = Member.objects.filter(organisation__slug=BIG, role="admin").select_related("user").order_by("pk")[0]
    assert admin.user is not None
    found[CUSTOMER].force_login(admin.user)
    return found


def _cookie(client: Client) -> dict[str, str]:
    name: str = settings.SESSION_COOKIE_NAME
    return {name: client.cookies[name].value}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one answer, in milliseconds: until it was there, and of that the time that this process computed."""

    wall: float
    cpu: float
    queries: int
    status: int
    bytes: int


def measure(named: Mapping[str, str], repetitions: int) -> dict[str, list[dict[str, Any]]]:
    """By page. In turns of all of them, so that a busy minute of the machine is nobody's alone."""
    with override_settings(ALLOWED_HOSTS=["*"]):
        clients, wanted = _clients(), asks(named)
        found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in wanted}
        for turn in range(WARM + repetitions):
            for one in wanted:
                cost = _cost(_question(clients[one.who], one))
                if turn >= WARM:
                    found[one.name].append(asdict(cost))
        return found


def _question(client: Client, one: Ask) -> Callable[[], Any]:
    if not one.is_draft:
        return lambda: client.get(one.path)
    draft = {"revision": _revision(one.path), "ttl_seconds": "77", "ttl_seconds-unit": "s"}
    return lambda: client.post(one.path, draft)


def _revision(path: str) -> int:
    """Which the level of that address has: a draft on another is refused, not previewed."""
    parts = path.strip("/").split("/")
    at = {"kind": "fleet"} if "orgs" not in parts else {"organisation__slug": BIG}
    if "namespaces" in parts:
        at = {"namespace__organisation__slug": BIG, "namespace__slug": parts[3]}
    return PolicyLevel.objects.get(**at).revision


class _Counter:
    """How many statements went to the database."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        return execute(*arguments)


def _cost(ask: Callable[[], Any]) -> Cost:
    counter = _Counter()
    watching: AbstractContextManager[None] = connection.execute_wrapper(counter)
    with watching:
        began, computed = time.perf_counter(), time.thread_time()
        answer = ask()
        size = _size(answer)
        cpu, wall = time.thread_time() - computed, time.perf_counter() - began
    return Cost(wall * 1e3, cpu * 1e3, counter.count, answer.status_code, size)


def _size(answer: Any) -> int:
    """In bytes. What is sent while it is read, as exports are, is read to its end here too."""
    if not answer.streaming:
        return len(answer.content)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "StreamingHttpResponse must consume asynchronous iterators")
        return sum(map(len, answer))
