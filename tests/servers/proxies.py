"""Proxies by their configurations in deploy/, run for real: those very files, but for addresses and certificates."""

import contextlib
import os
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from controlplane.settings.env import CHECKOUT
from tests.servers.programs import HAPROXY, NGINX
from tests.suite import outliving
from tests.support.certificates import self_signed
from tests.support.ports import free_port

ProxyName = Literal["nginx", "haproxy"]
PROXIES: Final[tuple[ProxyName, ...]] = ("nginx", "haproxy")
WEB_HOST, API_HOST = "luminet.example.com", "api.luminet.example.com"
STATED: Final = ("10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.21:8080", "10.0.0.22:8080")
READY_SECONDS: Final = 60.0
DEPLOY: Final = CHECKOUT / "deploy"
HAPROXYS_USER: Final = re.compile(r"^ *(?:user|group) haproxy\b.*\n", re.MULTILINE)


@contextmanager
def proxy_running(name: ProxyName, folder: Path, upstreams: Sequence[int], *, is_plain: bool = False) -> Iterator[int]:
    """Its port. `upstreams`: the ports of two web processes, then of two gateways. `is_plain`: without TLS."""
    folder.mkdir()
    port = free_port()
    tls = None if is_plain else self_signed(folder / "both.pem", WEB_HOST, API_HOST)
    command, environment = _CONFIGURED[name](folder, port, upstreams, tls)
    process = subprocess.Popen(command, env={**os.environ, **environment})
    outliving.name(process.pid)
    try:
        _listening_wait(process, port)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def _listening_wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    ends_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends_at:
        assert process.poll() is None, f"the proxy ended with {process.returncode}"
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port}")


Configured = tuple[Sequence[str], Mapping[str, str]]


def _with_upstreams(text: str, upstreams: Sequence[int]) -> str:
    for address, own in zip(STATED, upstreams, strict=True):
        assert text.count(address) == 1, address
        text = text.replace(address, f"127.0.0.1:{own}")
    return text


def _checked(command: Sequence[str], check: str, environment: Mapping[str, str]) -> None:
    """It says before its start what it does not understand."""
    done = subprocess.run([*command, check], env={**os.environ, **environment}, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not re.search(r"\[warn(?:ing)?\]", said, re.IGNORECASE), said


def haproxy_configuration(text: str) -> str:
    """Without the user that Debian's package makes, where this machine has none or may not change to it."""
    return text if os.geteuid() == 0 and _has_haproxys_user() else HAPROXYS_USER.sub("", text)


def _has_haproxys_user() -> bool:
    try:
        pwd.getpwnam("haproxy")
    except KeyError:
        return False
    return True


def _nginx(folder: Path, port: int, upstreams: Sequence[int], tls: Path | None) -> Configured:
    program, environment = NGINX.found()
    text = _with_upstreams((DEPLOY / "nginx" / "luminet.conf").read_text(), upstreams)
    assert text.count("listen 443 ssl;") == 2
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port}{' ssl' if tls else ''};")
    text = re.sub(r"/etc/ssl/luminet/\w+\.(pem|key)", str(tls), text) if tls else re.sub(r" *ssl_.*\n", "", text)
    (folder / "luminet.conf").write_text(text)
    (folder / "luminet-proxy.conf").write_text((DEPLOY / "nginx" / "luminet-proxy.conf").read_text())
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root root;\n" if os.geteuid() == 0 else ""  # its workers could not enter a test's folder otherwise
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/pid;\nevents {{ worker_connections 256; }}\n"
        f"http {{\naccess_log off;\n{places}include {folder}/luminet.conf;\n}}\n"
    )
    command = [str(program), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    _checked(command, "-t", environment)
    return command, environment


def _haproxy(folder: Path, port: int, upstreams: Sequence[int], tls: Path | None) -> Configured:
    program, environment = HAPROXY.found()
    text = _with_upstreams((DEPLOY / "haproxy" / "luminet.cfg").read_text(), upstreams)
    stated = "bind :443 ssl crt /etc/haproxy/luminet/"
    assert text.count(stated) == 1
    text = text.replace(stated, f"bind 127.0.0.1:{port}{f' ssl crt {tls}' if tls else ''}")
    (folder / "haproxy.cfg").write_text(haproxy_configuration(text))
    command = [str(program), "-db", "-f", str(folder / "haproxy.cfg")]
    _checked(command, "-c", environment)
    return command, environment


_CONFIGURED: Final[Mapping[ProxyName, Callable[[Path, int, Sequence[int], Path | None], Configured]]] = {
    "nginx": _nginx,
    "haproxy": _haproxy,
}
