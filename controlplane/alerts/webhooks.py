"""Checks the targets of webhooks, signs requests and sends them. Does not use the database.

A customer's webhook is a request that we send from inside on behalf of someone else. So it may reach only public
addresses, over TLS; it connects to the very address that was checked, and follows no redirects. An operators' rule may
reach private addresses over TLS, this machine only if LUMINET_WEBHOOK_HOSTS names its host, and named hosts also
without TLS.
"""

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tenants.errors import FieldProblem, InvalidFields

FIELD: Final = "webhook_url"
URL_LENGTH: Final = 500
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0  # for everything including the connection, however slowly the answer arrives
UNLESS_NAMED: Final = " unless its host is in LUMINET_WEBHOOK_HOSTS"
IN_NO_TIME: Final = "did not answer in time"
# For unknown and for forbidden hosts alike, so that it does not reveal which names resolve inside.
NO_WAY: Final = "its host has no address that webhooks may reach"
SIGNATURE_HEADER: Final = "Luminet-Signature"
TIMESTAMP_HEADER: Final = "Luminet-Timestamp"
DELIVERY_HEADER: Final = "Luminet-Delivery"
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(  # some versions of `is_global` accept these
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments, including 192.0.0.8
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # Azure's agent on every host
        "64:ff9b:1::/48",  # site-local NAT64
        "fec0::/10",  # site-local addresses, replaced by fc00::/7
    )
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The maker of the rule, and the hosts that operators allow in addition."""

    by_operator: bool
    hosts: Collection[str] = ()  # each a host, or host:port

    def names(self, target: Target) -> bool:
        """Return whether operators allow this host. Only for their own rules: a host they name stays closed to
        tenants."""
        return self.by_operator and (target.host in self.hosts or f"{target.host}:{target.port}" in self.hosts)


class NotAllowed(Exception):
    """The target is forbidden. The message names no address: a rule's author must not learn how names resolve
    inside."""


class NotTaken(Exception):
    """The receiver did not accept the request. A later try may succeed."""


def target_checked(url: str, policy: Policy) -> Target:
    """Return the target of the URL, or raise InvalidFields. Host names are resolved and checked only at each send."""
    target = target_read(url)
    if policy.names(target):
        return target
    if not target.is_tls:
        raise _refused(f"must begin with https://{UNLESS_NAMED if policy.by_operator else ''}")
    address = _literal(target.host)
    if target.host == "localhost" or (address is not None and not _may_lead_to(address, policy)):
        exemption = UNLESS_NAMED if policy.by_operator else ""
        raise _refused(f"leads to an address that webhooks may not reach{exemption}")
    return target


def target_read(url: str) -> Target:
    if (
        len(url) > URL_LENGTH
        or not url.isascii()
        or not url.isprintable()
        or any(character in url for character in ' "\\<>')
    ):
        raise _refused(f"must be a URL of at most {URL_LENGTH} ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise _refused("is no URL") from None
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise _refused("must be https:// with a host")
    if "@" in parts.netloc or parts.fragment:
        raise _refused("takes neither a login nor a fragment: webhooks are signed instead")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_tls, host, port or (443 if is_tls else 80), path)


def _refused(problem: str) -> InvalidFields:
    return InvalidFields([FieldProblem(FIELD, problem)])


# Addresses


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _may_lead_to(address: Address, policy: Policy) -> bool:
    inner = _inner(address)
    if inner.is_multicast or inner.is_unspecified or inner.is_loopback or inner.is_link_local or inner.is_reserved:
        return False
    return policy.by_operator or (inner.is_global and not any(inner in network for network in _NOT_PUBLIC))


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def addresses_allowed(target: Target, policy: Policy) -> list[str]:
    """Resolve the target's host now. Raise NotAllowed if any of its addresses is forbidden."""
    try:
        address_infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotTaken(NO_WAY) from None
    addresses = list(dict.fromkeys(str(address_info[4][0]) for address_info in address_infos))
    if not policy.names(target):
        _check_all(addresses, policy)
    return addresses


def _check_all(addresses: Collection[str], policy: Policy) -> None:
    for address in addresses:
        if not _may_lead_to(ipaddress.ip_address(address.partition("%")[0]), policy):
            raise NotAllowed(NO_WAY)


# Signing


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Sign timestamp and body together, so that neither can be replaced and a replay can be recognised."""
    return "v1=" + hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()


# Sending


def send(url: str, body: bytes, *, secret: str, delivery: str, timestamp: int, policy: Policy) -> None:
    """Send the request once. Raise NotTaken or NotAllowed unless the answer is 2xx. Follows no redirects."""
    try:
        target = target_checked(url, policy)
    except InvalidFields as error:
        raise NotAllowed(error.problems[0].message) from None
    headers = {
        "Host": target.host_header,
        "Content-Type": "application/json",
        "User-Agent": "Luminet",
        DELIVERY_HEADER: delivery,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: signature(secret, timestamp, body),
    }
    status = _posted(target, addresses_allowed(target, policy), body, headers)
    if not 200 <= status < 300:
        raise NotTaken(f"answered {status}")


def _posted(target: Target, addresses: Sequence[str], body: bytes, headers: dict[str, str]) -> int:
    watch = Watch(ANSWER_SECONDS)
    try:
        with watch, _connected(target, addresses, watch) as channel:
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = channel
            connection.request("POST", target.path, body, headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotTaken(IN_NO_TIME if watch.is_over else _problem(error)) from None
    if watch.is_over:  # the watch cut off the response head, which looks like its end
        raise NotTaken(IN_NO_TIME)
    return status


def _problem(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not valid"
    return IN_NO_TIME if isinstance(error, TimeoutError) else "cannot be reached, or did not answer as HTTP"


class Watch:
    """A deadline for a socket: shuts it down when time is up, so that a blocked reader gets an error."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._until = time.monotonic() + seconds
        self._held: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    @property
    def seconds_left(self) -> float:
        return max(self._until - time.monotonic(), 0.001)

    def hold(self, channel: socket.socket) -> None:
        """Watch this socket from now on. TLS takes over the descriptor, so the plain socket can no longer be shut
        down."""
        with self._lock:
            self._held = channel
            self._shut()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            self._shut()

    def _shut(self) -> None:
        if self.is_over and self._held is not None:
            with suppress(OSError):  # on the descriptor: the TLS shutdown is not safe from another thread
                socket.socket.shutdown(self._held, socket.SHUT_RDWR)


@contextmanager
def _connected(target: Target, addresses: Sequence[str], watch: Watch) -> Iterator[socket.socket]:
    """Connect to one of these addresses, and to no other."""
    with _plain(target, addresses, watch) as plain:
        watch.hold(plain)
        plain.settimeout(watch.seconds_left)
        if not target.is_tls:
            yield plain
            return
        context = ssl.create_default_context()
        with context.wrap_socket(plain, server_hostname=target.host, do_handshake_on_connect=False) as channel:
            watch.hold(channel)
            channel.do_handshake()
            yield channel


def _plain(target: Target, addresses: Sequence[str], watch: Watch) -> socket.socket:
    """Return the first connection that succeeds: where one address family fails, the other may work."""
    for address in addresses:
        if not watch.is_over:
            with suppress(OSError):
                return socket.create_connection((address, target.port), min(CONNECT_SECONDS, watch.seconds_left))
    raise ConnectionError
