"""deploy/nginx as it is, but for addresses and certificates, in front of two web processes and two gateways."""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from controlplane.health import web_check
from controlplane.settings.env import CHECKOUT
from tests import outliving
from tests.certificates import self_signed
from tests.factories import PASSWORD
from tests.fleets import Fleet, Part, fleet_running, wait_for
from tests.nginx import NginxUnavailable, nginx
from tests.ports import free_port
from tests.usage_chats import Customer
from tests.usage_fleets import MODEL, customer, engine_agent, gateway, organisation_make

API = "api.luminet.example.com"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Front:
    """The proxy with what stands behind it."""

    fleet: Fleet
    url: str
    webs: list[Part]
    gateways: list[Part]
    acme: Customer
    ports: list[int]  # of the web processes, then of the gateways
    log: Path  # who was asked, by its address

    def asked(self) -> set[int]:
        """The ports of all that were ever asked."""
        return {int(one) for one in re.findall(r":(\d+)", self.log.read_text())}

    def ask(self, **more: object) -> httpx.Response:
        body = {"model": MODEL, "prompt": "Hello", "max_tokens": 4, **more}
        headers = {"authorization": f"Bearer {self.acme.key}", "host": API}
        return httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, verify=False, timeout=60)

    @contextmanager
    def signed_in(self) -> Iterator[httpx.Client]:
        asked_by = {"referer": f"{self.url}/"}
        with httpx.Client(base_url=self.url, verify=False, headers=asked_by, timeout=30) as client:
            page = client.get("/sign-in")
            found = TOKEN.search(page.text)
            assert found, (page.status_code, page.text[:300])
            form = {"csrfmiddlewaretoken": found[1], "email": "operator@luminet.example", "password": PASSWORD}
            assert client.post("/sign-in", data=form).status_code == 302
            yield client


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    try:
        program = nginx()
    except NginxUnavailable as problem:
        pytest.skip(str(problem))
    with fleet_running() as fleet, ExitStack() as stack:
        _static_files_collect(fleet)
        organisation_make(fleet, "acme")
        acme = customer(fleet, "acme")
        stack.enter_context(engine_agent(fleet, "engine-1"))
        doors = [stack.enter_context(gateway(fleet, name)) for name in ("gateway-1", "gateway-2")]
        second = _second_web(fleet)
        stack.callback(second.stop)
        second.start()
        webs = [fleet.parts["web"], second]
        ports = [int(one.environment["LUMINET_WEB_PORT"]) for one in webs]
        ports += [int(url.rpartition(":")[2]) for _, url in doors]
        port = free_port()
        folder = tmp_path_factory.mktemp("nginx")
        _configured(folder, port, ports)
        stack.enter_context(_running(program, folder))
        gateways = [part for part, _ in doors]
        found = Front(fleet, f"https://127.0.0.1:{port}", webs, gateways, acme, ports, folder / "asked")
        wait_for(lambda: _answers(found), "an answer through the proxy")
        yield found


def _static_files_collect(fleet: Fleet) -> None:
    """Which a web process knows from its start on."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUMINET_", "DJANGO_"))}
    command = [sys.executable, "manage.py", "collectstatic", "--no-input"]
    subprocess.run(command, cwd=CHECKOUT, env={**kept, **fleet.environment}, check=True, capture_output=True)
    fleet.parts["web"].stop()
    fleet.parts["web"].start()


def _second_web(fleet: Fleet) -> Part:
    first, port = fleet.parts["web"], free_port()
    environment = {**first.environment, "LUMINET_WEB_PORT": str(port)}
    log = fleet.config.logs / "web-2.log"
    return Part("web-2", first.command, environment, log, lambda: web_check(f"http://127.0.0.1:{port}"))


def _configured(folder: Path, port: int, upstreams: list[int]) -> None:
    certificate = self_signed(folder / "both.pem", API)
    text = (CHECKOUT / "deploy" / "nginx" / "luminet.conf").read_text()
    stated = ("10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.21:8080", "10.0.0.22:8080")
    for address, own in zip(stated, upstreams, strict=True):
        assert text.count(address) == 1
        text = text.replace(address, f"127.0.0.1:{own}")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    text = re.sub(r"/etc/ssl/luminet/\w+\.(pem|key)", str(certificate), text)
    (folder / "luminet.conf").write_text(text)
    (folder / "luminet-proxy.conf").write_text((CHECKOUT / "deploy" / "nginx" / "luminet-proxy.conf").read_text())
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root root;\n" if os.geteuid() == 0 else ""  # its workers could not enter a test's folder otherwise
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/pid;\nevents {{ worker_connections 256; }}\n"
        f"http {{\nlog_format asked $upstream_addr;\naccess_log {folder}/asked asked;\n"
        f"{places}include {folder}/luminet.conf;\n}}\n"
    )


@contextmanager
def _running(program: Path, folder: Path) -> Iterator[None]:
    """nginx, which says before its start what it does not understand."""
    command = [str(program), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr, tested.stderr
    process = subprocess.Popen(command)
    outliving.name(process.pid)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def _answers(front: Front) -> bool:
    try:
        return front.ask().status_code == 200
    except httpx.TransportError:
        return False


def test_people_sign_in_and_are_the_same_to_both_web_processes(front: Front) -> None:
    with front.signed_in() as client:
        assert {client.get("/").status_code for _ in range(6)} == {200}
        assert front.asked().issuperset(front.ports[:2]), "one of the two was never asked"
        assert client.get("/metrics").status_code == 404


def test_a_live_socket_hears_of_the_fleet(front: Front) -> None:
    with front.signed_in() as client:
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    address = f"{front.url.replace('https', 'wss', 1)}/ws/live/fleet"
    with connect(
        address, ssl=trusting, origin=Origin(front.url), additional_headers={"cookie": cookies}, proxy=None
    ) as socket:
        assert "type" in json.loads(socket.recv(timeout=30))


def test_a_streamed_answer_comes_as_it_is_made(front: Front) -> None:
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": 200, "stream": True, "ignore_eos": True}
    headers = {"authorization": f"Bearer {front.acme.key}", "host": API}
    with httpx.stream(
        "POST", f"{front.url}/v1/completions", json=body, headers=headers, verify=False, timeout=60
    ) as answer:
        parts = [part for part in answer.iter_raw() if part]
    assert answer.status_code == 200
    assert parts[-1].endswith(b"data: [DONE]\n\n")
    assert len(parts) > 10, "it came in one piece"


def test_one_of_each_is_killed_and_nobody_notices(front: Front) -> None:
    assert {front.ask().status_code for _ in range(8)} == {200}
    assert front.asked().issuperset(front.ports[2:]), "one of the two was never asked"
    front.gateways[1].kill()
    front.webs[1].kill()
    with front.signed_in() as client:
        assert {client.get("/").status_code for _ in range(8)} == {200}
    assert {front.ask().status_code for _ in range(8)} == {200}
