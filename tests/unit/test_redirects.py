"""Who is asked with a token may lead elsewhere: whoever is there never sees it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from controlplane.common.health import http_get
from engine_agent.tools.errors import ToolError
from engine_agent.tools.examining import _control_plane
from engine_agent.tools.quality.artefact import load_artefact
from engine_agent.tools.quality.publishing import publish
from tests.fleet.rollouts import SHIPPED

TOKEN = "of-somebody"
Heard = list[str | None]  # of each request: who it said it is


@contextmanager
def server(heard: Heard, leads_to: str | None) -> Iterator[str]:
    class Site(BaseHTTPRequestHandler):
        def answer(self) -> None:
            heard.append(self.headers.get("authorization"))
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(302 if leads_to else 200)
            if leads_to:
                self.send_header("location", leads_to)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = answer  # noqa: N815 (as its class wants them called)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as one:
        serving = Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{one.server_port}"
        one.shutdown()
        serving.join()


def publishes(url: str) -> None:
    with pytest.raises(ToolError, match="302"):
        publish(load_artefact(SHIPPED.parent, backend="torch-cpu"), "my-model", url=url, token=TOKEN)


def asks_for_health(url: str) -> None:
    with suppress(OSError):
        http_get(f"{url}/metrics", bearer=TOKEN)


def examines(url: str) -> None:
    assert _control_plane(url, TOKEN)["status"] == 302


@pytest.mark.parametrize("ask", [publishes, asks_for_health, examines])
def test_a_token_is_for_whom_was_asked(ask: Callable[[str], None]) -> None:
    asked: Heard = []
    elsewhere: Heard = []
    with ExitStack() as stack:
        there = stack.enter_context(server(elsewhere, None))
        ask(stack.enter_context(server(asked, f"{there}/elsewhere")))
    assert asked == [f"Bearer {TOKEN}"]
    assert set(elsewhere) <= {None}
