"""Where an engine's address leads, and for how long it is tried."""

import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine_agent.gateway.calling import dialling
from engine_agent.gateway.calling.dialling import Address, Dialling, address_read
from engine_agent.gateway.tables import Engine
from engine_agent.gateway.upstream import NotThere, Upstream, whole
from tests.support.waiting import wait_until_async
from tests.unit.gateway.calling.engines import ANSWER, Talk, asked, engine


async def good(talk: Talk) -> None:
    while True:
        await talk.heard()
        await talk.say(ANSWER)


async def mute(talk: Talk) -> None:
    await talk.until_left()


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("http://10.0.0.1:8000", Address("10.0.0.1", 8_000, False, "10.0.0.1:8000")),
        ("http://engine", Address("engine", 80, False, "engine")),
        ("https://engine.example", Address("engine.example", 443, True, "engine.example")),
        ("https://[::1]:9", Address("::1", 9, True, "[::1]:9")),
        ("http://bücher.example:1", Address("bücher.example", 1, False, "xn--bcher-kva.example:1")),
    ],
)
def test_an_address_says_where_and_how(told: str, meant: Address) -> None:
    assert address_read(told) == meant


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A key and a certificate for localhost that it signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "engine.pem"
    plain = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, plain[1], plain[0])
    path.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def serving(secrets: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets)
    return context


async def test_an_engine_is_spoken_to_through_tls_where_its_certificate_is_trusted(
    serving: ssl.SSLContext, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting = ssl.create_default_context(cafile=str(secrets))
    monkeypatch.setattr(dialling, "_tls", lambda: trusting)
    body = bytes(2**20)
    async with engine(good, serving) as running, Upstream() as upstream:
        for _ in range(3):
            async with asked(upstream, running.engine, body) as answer:
                assert await whole(answer) == b"{}"
        assert running.connections == 1


async def test_an_engine_whose_certificate_is_not_trusted_is_not_there(serving: ssl.SSLContext) -> None:
    async with engine(good, serving) as running, Upstream() as upstream:
        with pytest.raises(NotThere, match="certificate"):
            async with asked(upstream, running.engine):
                pass


async def test_who_accepts_and_never_speaks_tls_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "CONNECT_SECONDS", 0.2)
    async with engine(mute) as running, Upstream() as upstream:
        address = running.engine.address.replace("http:", "https:")
        with pytest.raises(NotThere):
            async with asked(upstream, Engine("agent-1", address, True, {}, b"")):
                pass
        assert running.connections == 1


async def test_of_several_places_the_next_is_tried_and_a_name_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with engine(good) as running:
        port = int(running.engine.address.rsplit(":", 1)[1])
        looked_up = []

        async def places(host: str, port: int) -> list[dialling.Place]:
            looked_up.append(host)
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]

        monkeypatch.setattr(dialling, "_looked_up", places)
        dialled = Dialling()
        address = address_read(f"http://engine.example:{port}")
        for _ in range(2):
            (await dialled.dial(address, lambda ended: None)).close()
        assert looked_up == ["engine.example"]
        await wait_until_async(lambda: running.connections >= 2)
