"""Sending one webhook, to servers that do not behave. No database."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.alerts import webhooks
from controlplane.alerts.webhooks import IN_NO_TIME, NotTaken, Policy, send
from tests.support.certificates import self_signed

BODY = b"{}"
Answer = Callable[[socket.socket, threading.Event], None]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls") / "both.pem")


class Server:
    """Answers every connection in its own way, until the test is over."""

    def __init__(self, answer: Answer, certificate: Path | None) -> None:
        self._answer, self._over = answer, threading.Event()
        self.has_ended = False  # its answer, of its own will
        self._context = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self._listening.getsockname()[1]}/"

    def stop(self) -> None:
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        try:
            channel, _ = self._listening.accept()
            with channel, self._by_tls(channel) as spoken:
                self._read(spoken)
                self._answer(spoken, self._over)
                self.has_ended = not self._over.is_set()
        except OSError:
            return

    @staticmethod
    def _read(spoken: socket.socket) -> None:
        """All of it: what is closed with something unread is reset."""
        read = b"-"
        while read and not read.endswith(BODY):
            read = spoken.recv(65_536)

    def _by_tls(self, channel: socket.socket) -> socket.socket:
        return channel if self._context is None else self._context.wrap_socket(channel, server_side=True)


Serve = Callable[..., Server]


@pytest.fixture
def serve(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    made = list[Server]()

    def by(answer: Answer, *, is_tls: bool) -> Server:
        made.append(Server(answer, certificate if is_tls else None))
        return made[-1]

    yield by
    for one in made:
        one.stop()


def drips(channel: socket.socket, over: threading.Event) -> None:
    """A head of 20 seconds, each byte well within every time limit of a socket."""
    channel.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(400):
        if over.wait(0.05):
            return
        channel.sendall(b"a")
    channel.sendall(b"\r\nContent-Length: 0\r\n\r\n")


def takes(channel: socket.socket, _: threading.Event) -> None:
    channel.sendall(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")


def says_nothing(_: socket.socket, over: threading.Event) -> None:
    over.wait()


def sent(url: str) -> None:
    policy = Policy(by_operator=True, hosts=("127.0.0.1",))
    send(url, BODY, secret="lmw_x", delivery="d", timestamp=1, policy=policy)


@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("answer", [drips, says_nothing])
def test_who_never_ends_its_answer_is_left_and_has_not_taken_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: Answer, is_tls: bool
) -> None:
    monkeypatch.setattr(webhooks, "ANSWER_SECONDS", 0.5)
    with pytest.raises(NotTaken, match=IN_NO_TIME):
        sent((server := serve(answer, is_tls=is_tls)).url)
    assert not server.has_ended, "nobody waited for that"


def test_who_never_ends_the_handshake_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(NotTaken, match=IN_NO_TIME):
        sent(f"https://127.0.0.1:{listening.getsockname()[1]}/")


@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
def test_who_answers_has_taken_it(serve: Serve, is_tls: bool) -> None:
    sent(serve(takes, is_tls=is_tls).url)


def test_a_certificate_that_nobody_vouches_for_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    url = serve(takes, is_tls=True).url
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(NotTaken, match="its certificate is not valid"):
        sent(url)


def test_where_the_first_address_leads_nowhere_the_next_one_is_told(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver of both families, reached from where there is one."""
    url = serve(takes, is_tls=False).url

    def both(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        names = ("127.0.0.2", "127.0.0.1") if host == "127.0.0.1" else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in names]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    sent(url)
