"""Whose certificate is shown: none that is not seen is called bad."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from controlplane.doctor.finding import NotExamined
from controlplane.doctor.web import BadCertificate, certificate_end
from tests.support.certificates import self_signed
from tests.support.ports import free_port

SECONDS = 10.0


@contextmanager
def answering_once(certificate: Path | None) -> Iterator[str]:
    """Without one it speaks plain HTTP where TLS is expected."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            plain, _ = server.accept()
            with plain, suppress(OSError):
                if certificate is None:
                    plain.recv(1000)
                    plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                context.wrap_socket(plain, server_side=True).close()

        answering = Thread(target=answer)
        answering.start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        answering.join()


def test_one_that_nobody_vouches_for_is_bad(tmp_path: Path) -> None:
    refused = pytest.raises(BadCertificate, match="its certificate is not trusted")
    with answering_once(self_signed(tmp_path / "both.pem")) as url, refused:
        certificate_end(url, SECONDS)


def test_where_no_tls_is_spoken_or_nobody_listens_there_is_none_to_judge() -> None:
    with answering_once(None) as url, pytest.raises(NotExamined, match=r"cannot be reached from here: ."):
        certificate_end(url, SECONDS)
    with pytest.raises(NotExamined, match=r"cannot be reached from here: ."):
        certificate_end(f"https://127.0.0.1:{free_port()}", SECONDS)
