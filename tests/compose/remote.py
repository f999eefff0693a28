"""The compose twin's other machine: certificates of an authority made here, HAProxy, and docker-compose.agent.yml."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.compose.files import CHECKOUT, compose_interpolated
from tests.compose.twin import Part, Twin
from tests.servers.programs import HAPROXY
from tests.servers.proxies import haproxy_configuration

BROKER: Final = CHECKOUT / "deploy" / "broker" / "haproxy.cfg"
NAME: Final = "remote-1"


def haproxy_script(folder: Path) -> str:
    """What runs it with the broker's configuration, for a shell."""
    program, environment = HAPROXY.found()
    configuration = folder / "haproxy.cfg"
    configuration.write_text(haproxy_configuration(BROKER.read_text()))
    assignments = "".join(f"{name}={value} " for name, value in environment.items())
    return f"{assignments}exec {program} -db -f {configuration}"


def certificates_make(folder: Path) -> None:
    """An authority (`ca.pem`), and by it a certificate for 127.0.0.1 with its key, as the broker wants them."""
    folder.mkdir()
    authority_key, authority = _signed("Luminet's test authority", None)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    key, certificate = _signed("broker", (authority_key, authority), names)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(authority.public_bytes(pem))
    (folder / "broker.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "broker.pem.key").write_bytes(secret)


Pair = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _signed(name: str, by: Pair | None, names: x509.SubjectAlternativeName | None = None) -> Pair:
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[1].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(names, critical=False)
    return key, builder.sign(by[0] if by else key, hashes.SHA256())


@contextmanager
def remote_agent_running(twin: Twin, token: str) -> Iterator[Part]:
    """The service `agent` of docker-compose.agent.yml, as on another machine."""
    variables = {
        "LUMINET_JOIN_URL": twin.web,
        "LUMINET_JOIN_TOKEN": token,
        "LUMINET_AGENT_NAME": NAME,
        "LUMINET_AGENT_BIND": "127.0.0.1",
        "LUMINET_AGENT_PORT": str(twin.ports["remote"]),
        "LUMINET_CA_FILE": str(twin.place / "tls" / "ca.pem"),
    }
    service = compose_interpolated(variables, CHECKOUT / "docker-compose.agent.yml")["services"]["agent"]
    volumes = [re.sub(r"^(agent|caches):", rf"{NAME}-\1:", volume) for volume in service["volumes"]]
    for volume in ("agent", "caches"):
        (twin.place / "volumes" / f"{NAME}-{volume}").mkdir(mode=0o700)
    twin.services["remote"] = {**service, "volumes": volumes}
    try:
        with twin.running("remote") as part:
            yield part
    finally:
        del twin.services["remote"]


def metric(twin: Twin, name: str) -> float:
    """Of the remote agent's sidecar, at the port a hundred above its engine's."""
    page = build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{twin.ports['remote'] + 100}/metrics", timeout=10)
    lines = [line for line in page.read().decode().splitlines() if line.startswith(f"{name} ")]
    return sum(float(line.split()[-1]) for line in lines)
