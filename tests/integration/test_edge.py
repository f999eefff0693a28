"""What arrives at the edge, byte by byte: every case at every server, alone and behind the proxies of deploy/.

docs/http-edge.md lists the cases.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.database.factories import PASSWORD
from tests.edge import proxied
from tests.edge.cases import CASES, SERVERS, Server
from tests.edge.exchange import connected, deaf, exchange
from tests.edge.proxied import Proxied
from tests.edge.running import complaints_by_server
from tests.edge.steps import ANSWERED
from tests.edge.world import World, cases_proxied, world_running
from tests.gateway.levels import metrics
from tests.servers.programs import ProgramUnavailable
from tests.servers.proxies import API_HOST, PROXIES, proxy_running
from tests.support.waiting import wait_until
from tests.usage.fleets import MODEL

STATIC = re.compile(r'href="(/static/[^"]+\.css)"')
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
OPERATOR = "operator@luminet.example"
WRONG_PASSWORDS = 5  # of one account from one address; the next one is held back
ANSWERED_REQUESTS = "luminet_gateway_requests_total demo answered"
Behind = Mapping[Server, Proxied]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_running(tmp_path_factory.mktemp("edge")) as found:
        yield found


@pytest.fixture(scope="module")
def complaints(world: World) -> Mapping[Server, list[str]]:
    """Of all servers, whose cases run side by side."""
    return complaints_by_server(world.servers.values(), CASES)


@pytest.mark.parametrize("server", SERVERS)
def test_every_case_is_answered_as_listed(complaints: Mapping[Server, list[str]], server: Server) -> None:
    assert complaints[server] == []


def test_unread_answer_is_given_up(world: World) -> None:
    """But a sidecar's, which is shorter than what sockets hold."""
    servers = [running for server, running in world.servers.items() if server != "sidecar"]
    with ExitStack() as stack:
        clients = [stack.enter_context(deaf(running.address, running.unread)) for running in servers]
        held = {client.getsockname()[1]: running for client, running in zip(clients, servers, strict=True)}
        for port, running in held.items():
            wait_until(lambda: port in running.client_ports(), f"a connection at the {running.server}")  # noqa: B023
        for port, running in held.items():
            wait_until(lambda: port not in running.client_ports(), f"its end at the {running.server}")  # noqa: B023
    assert [running.faults() for running in servers] == [[]] * len(servers)


def test_304_has_no_body(world: World) -> None:
    web = world.servers["web"]
    with httpx.Client(base_url=f"http://127.0.0.1:{web.port}") as client:
        found = STATIC.search(client.get("/sign-in").text)
        assert found
        modified = client.get(found[1]).headers["last-modified"]
    request = f"GET {found[1]} HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-Modified-Since: {modified}\r\n\r\n".encode()
    many = (request, ANSWERED) * 50  # the application ends each one when the client has it already
    outcome = asyncio.run(exchange(web.address, many, "stays", web.values("304"), count=50))
    assert (outcome.statuses, outcome.end, outcome.problem) == ((304,) * 50, "stays", "")


# Behind proxies


@pytest.fixture(scope="module", params=PROXIES)
def behind(request: pytest.FixtureRequest, world: World) -> Iterator[Behind]:
    with skipping(), cases_proxied(world, request.param) as servers:
        yield servers


def test_no_case_deceives_a_proxy(behind: Behind) -> None:
    assert proxied.complaints_by_server(behind) == {server: [] for server in behind}
    seen = [request for each in behind.values() for request in each.seen()]
    assert len(seen) > len(proxied.CASES), "it passed on too little to prove anything"
    assert [complaint for request in seen for complaint in proxied.forged(request)] == []


def test_nobody_forges_an_address_to_guess_on(world: World, behind: Behind) -> None:
    port, email = behind["web"].port, f"guessed-{behind['web'].proxy}@acme.example"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        token, cookie = _token(client), f"luminet_csrf={client.cookies['luminet_csrf']}"
    form = urlencode({"csrfmiddlewaretoken": token, "email": email, "password": "wrong"}).encode()
    statuses = [asyncio.run(_guess(port, form, cookie, number)) for number in range(8)]
    assert statuses == [422] * WRONG_PASSWORDS + [429] * 3
    addresses = world.fleet.rows("SELECT DISTINCT host(address) FROM tenants_signinattempt")
    assert addresses == [("127.0.0.1",)]
    assert world.fleet.value("SELECT count(*) FROM tenants_auditrecord WHERE address LIKE '203.0.113.%%'") == 0


async def _guess(port: int, form: bytes, cookie: str, number: int) -> int:
    """With another address each time, in the head and behind the body."""
    forged = b"X-Forwarded-For: 203.0.113.%d\r\n" % number
    head = (
        b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Referer: https://127.0.0.1/\r\nTransfer-Encoding: chunked\r\nCookie: %b\r\n%b\r\n" % (cookie.encode(), forged)
    )
    body = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(form), form, forged)
    async with connected(("127.0.0.1", port), {}) as client:
        outcome = await client.carried_out((head + body, ANSWERED), "left", count=1)
    return outcome.statuses[0]


@contextmanager
def skipping() -> Iterator[None]:
    try:
        yield
    except ProgramUnavailable as problem:
        pytest.skip(str(problem))


@dataclass(frozen=True, slots=True)
class Front:
    """A proxy as it is supplied, with everything that stands behind it."""

    world: World
    url: str

    def ask(self, **more: object) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/completions", **self.request(**more), verify=False, timeout=60)  # type: ignore[arg-type]

    def request(self, **more: object) -> dict[str, object]:
        body = {"model": MODEL, "prompt": "Hello", "max_tokens": 4, **more}
        return {"json": body, "headers": {"authorization": f"Bearer {self.world.acme.key}", "host": API_HOST}}

    @contextmanager
    def signed_in(self) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.url, verify=False, headers={"referer": f"{self.url}/"}, timeout=30) as client:
            form = {"csrfmiddlewaretoken": _token(client), "email": OPERATOR, "password": PASSWORD}
            assert client.post("/sign-in", data=form).status_code == 302
            yield client

    def answered(self) -> list[int]:
        """How many requests each gateway has answered."""
        return [int(metrics(url).get(ANSWERED_REQUESTS, 0)) for url in self.world.gateway_urls]

    def logged(self) -> list[int]:
        """How much each web process has logged, which writes a line for each request."""
        return [len(web.said) for web in self.world.webs]


def _token(client: httpx.Client) -> str:
    page = client.get("/sign-in")
    found = TOKEN.search(page.text)
    assert found, (page.status_code, page.text[:300])
    return found[1]


@pytest.fixture(scope="module", params=PROXIES)
def front(request: pytest.FixtureRequest, world: World) -> Iterator[Front]:
    with skipping(), proxy_running(request.param, world.folder / request.param, world.ports) as port:
        found = Front(world, f"https://127.0.0.1:{port}")
        wait_until(lambda: _answers(found), "an answer through the proxy")
        yield found


def _answers(front: Front) -> bool:
    try:
        with httpx.Client(base_url=front.url, verify=False) as client:
            return front.ask().status_code == 200 and client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def grew(before: list[int], after: list[int]) -> list[bool]:
    return [one < other for one, other in zip(before, after, strict=True)]


def test_people_sign_in_and_are_the_same_to_both_web_processes(front: Front) -> None:
    before = front.logged()
    with front.signed_in() as client:
        assert {client.get("/").status_code for _ in range(6)} == {200}
        assert client.get("/metrics").status_code == 404
        assert client.get("/%6detrics").status_code == 404
    wait_until(lambda: grew(before, front.logged()) == [True, True], "requests at both web processes")


def test_a_live_socket_hears_of_the_fleet(front: Front) -> None:
    with front.signed_in() as client:
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    address = f"{front.url.replace('https', 'wss', 1)}/ws/live/fleet"
    origin = Origin(front.world.fleet.web)  # LUMINET_BASE_URL, which in production is the proxy's address
    with connect(address, ssl=trusting, origin=origin, additional_headers={"cookie": cookies}, proxy=None) as socket:
        assert "type" in json.loads(socket.recv(timeout=30))


def test_a_streamed_answer_comes_as_it_is_made(front: Front) -> None:
    request = front.request(max_tokens=200, stream=True, ignore_eos=True)
    with httpx.stream("POST", f"{front.url}/v1/completions", **request, verify=False, timeout=60) as answer:  # type: ignore[arg-type]
        parts = [part for part in answer.iter_raw() if part]
    assert answer.status_code == 200
    assert parts[-1].endswith(b"data: [DONE]\n\n")
    assert len(parts) > 10, "it came in one piece"


def test_one_of_each_is_killed_and_nobody_notices(front: Front) -> None:
    before = front.answered()
    assert {front.ask().status_code for _ in range(8)} == {200}
    assert grew(before, front.answered()) == [True, True]
    world = front.world
    world.gateways[1].kill()
    world.webs[1].kill()
    try:
        with front.signed_in() as client:
            assert {client.get("/").status_code for _ in range(8)} == {200}
        assert {front.ask().status_code for _ in range(8)} == {200}
    finally:
        world.gateways[1].start()
        world.webs[1].start()
