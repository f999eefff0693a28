"""The control plane's environment, read once into a frozen value. docs/operations.md lists every variable."""

import ipaddress
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from controlplane.settings.reader import MalformedSettings, SettingsReader
from engine_agent.contracts.protocol import broker_url_verified

CHECKOUT = Path(__file__).resolve().parents[2]
PLACEHOLDER_HOSTS = ("missing", "malformed")  # the reader's stand-ins for a URL that it has already rejected
JOIN_TOKEN = re.compile(r"ljt_[0-9A-Za-z]{49}")
WEBHOOK_HOST = re.compile(r"([a-z0-9_.-]+(:[1-9][0-9]{0,4})?|[0-9a-f:.]*:[0-9a-f:.]*)", re.ASCII)
REDIS_SCHEMES = ("redis", "rediss")
REDIS_SECRETS = frozenset({"username", "password", "ssl_password"})  # in a URL's query string
LOG_FORMATS = ("json", "text")
DEFAULT_PORTS = {"http": 80, "https": 443}  # ports that no browser writes into an Origin
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets that production must supply. Never printed: the representation omits every field."""

    secret_key: str = field(repr=False)
    master_key: bytes = field(repr=False)
    previous_master_key: bytes | None = field(repr=False)
    signing_key: bytes = field(repr=False)
    previous_signing_keys: tuple[bytes, ...] = field(repr=False)  # newest first
    pepper: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnchorSinks:
    """Destinations outside the database for the audit trail's head."""

    file: Path | None
    syslog: str | None  # udp://host:514 or unix:///dev/log
    webhook: str | None = field(repr=False)
    webhook_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Environment:
    base_url: str
    allowed_hosts: tuple[str, ...]
    database_url: str = field(repr=False)
    database_owner_url: str | None = field(repr=False)  # the login that migrates; None: the application's
    redis_url: str = field(repr=False)
    agent_redis_url: str | None  # the broker's URL for agents, if it differs from ours; without a login
    join_token: str | None = field(repr=False)
    secrets: Secrets
    web_host: str
    web_port: int
    web_workers: int
    web_connections: int  # of each process
    web_connections_per_address: int
    web_head_seconds: int
    web_body_seconds: int
    trusted_proxies: tuple[Network, ...]
    static_root: Path
    metrics_dir: Path | None
    metrics_token: str | None = field(repr=False)
    api_requests_per_minute: int
    is_demo: bool  # whether controlplane.demo is installed
    demo_gateway: str | None  # destination of the demo's traffic
    anchors: AnchorSinks
    webhook_hosts: tuple[str, ...]  # hosts that webhooks may call at any address, also without TLS
    log_format: str
    log_level: str

    @property
    def shared_metrics_dir(self) -> Path | None:
        """Return the metrics directory if several processes share it. A single one avoids files: a disk can be full."""
        return self.metrics_dir if self.web_workers > 1 else None

    @property
    def is_https(self) -> bool:
        return self.base_url.startswith("https://")

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the `Origin` values of our pages: each allowed host, with the base URL's scheme and port."""
        parts = urlsplit(self.base_url)
        port = "" if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
        return tuple(dict.fromkeys(f"{parts.scheme}://{host.lower()}{port}" for host in self.allowed_hosts))


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Return the whole environment, or raise MalformedSettings, which names every malformed variable."""
    reader = SettingsReader(environ)
    base_url = reader.url("LUMINET_BASE_URL", ("https", "http")).rstrip("/")
    _check_base_url(reader, base_url)
    database_url = _database_url(reader, "LUMINET_DATABASE_URL")
    metrics_dir = reader.text("LUMINET_METRICS_DIR", "")
    web_workers = reader.number("LUMINET_WEB_WORKERS", 1, low=1, high=64)
    if web_workers > 1 and not metrics_dir:
        reader.reject("LUMINET_METRICS_DIR", f"is required for {web_workers} web processes to add up their metrics")
    environment = Environment(
        base_url=base_url,
        allowed_hosts=(_spelled_host(base_url), *_hosts(reader)),
        database_url=database_url,
        database_owner_url=_database_owner_url(reader, database_url),
        redis_url=broker_url_verified(reader.url("LUMINET_REDIS_URL", REDIS_SCHEMES)),
        agent_redis_url=_agent_redis_url(reader),
        join_token=_join_token(reader),
        secrets=_read_secrets(reader),
        web_host=reader.text("LUMINET_WEB_HOST", "127.0.0.1"),
        web_port=reader.port("LUMINET_WEB_PORT", 8000),
        web_workers=web_workers,
        web_connections=reader.number("LUMINET_WEB_CONNECTIONS", 4096, low=1, high=65_536),
        web_connections_per_address=reader.number("LUMINET_WEB_CONNECTIONS_PER_ADDRESS", 1_024, low=1, high=65_536),
        web_head_seconds=reader.number("LUMINET_WEB_HEAD_SECONDS", 30, low=1, high=600),
        web_body_seconds=reader.number("LUMINET_WEB_BODY_SECONDS", 60, low=1, high=3_600),
        trusted_proxies=tuple(_networks(reader)),
        static_root=reader.path("LUMINET_STATIC_ROOT", CHECKOUT / ".luminet" / "static"),
        metrics_dir=Path(metrics_dir) if metrics_dir else None,
        metrics_token=reader.text("LUMINET_METRICS_TOKEN", "") or None,
        api_requests_per_minute=reader.number("LUMINET_API_REQUESTS_PER_MINUTE", 6000, low=1, high=1_000_000),
        is_demo=reader.flag("LUMINET_DEMO", False),
        demo_gateway=_demo_gateway(reader),
        anchors=_anchor_sinks(reader),
        webhook_hosts=_webhook_hosts(reader),
        log_format=reader.choice("LUMINET_LOG_FORMAT", "json", LOG_FORMATS),
        log_level=reader.choice("LUMINET_LOG_LEVEL", "INFO", LOG_LEVELS),
    )
    reader.finish()
    return environment


def read_environment_or_exit(environ: Mapping[str, str]) -> Environment:
    """Return the environment, or exit with one readable message and status 2. For entry points."""
    try:
        return read_environment(environ)
    except MalformedSettings as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _read_secrets(reader: SettingsReader) -> Secrets:
    return Secrets(
        secret_key=reader.secret("LUMINET_SECRET_KEY", minimum_length=50),
        master_key=reader.secret_bytes("LUMINET_MASTER_KEY", length=32),
        previous_master_key=reader.optional_secret_bytes("LUMINET_PREVIOUS_MASTER_KEY", length=32),
        signing_key=reader.secret_bytes("LUMINET_SIGNING_KEY", length=32),
        previous_signing_keys=reader.optional_secrets_bytes("LUMINET_PREVIOUS_SIGNING_KEYS", length=32),
        pepper=reader.secret_bytes("LUMINET_PEPPER", length=32),
    )


def _database_url(reader: SettingsReader, name: str) -> str:
    url = reader.url(name, ("postgresql", "postgres"))
    if not urlsplit(url).path.strip("/") and urlsplit(url).hostname not in PLACEHOLDER_HOSTS:
        reader.reject(name, "names no database: end it with /NAME")
    return url


def _database_owner_url(reader: SettingsReader, application_url: str) -> str | None:
    name = "LUMINET_DATABASE_OWNER_URL"
    if not reader.text(name, ""):
        return None
    url = _database_url(reader, name)
    owner, application = urlsplit(url), urlsplit(application_url)
    if owner.path.strip("/") not in ("", application.path.strip("/")):
        reader.reject(name, "must name the same database as LUMINET_DATABASE_URL")
    if owner.username == application.username and application.username is not None:
        reader.reject(name, "must be another login than LUMINET_DATABASE_URL's: the tables' owner")
    return url


def _agent_redis_url(reader: SettingsReader) -> str | None:
    if not reader.text("LUMINET_AGENT_REDIS_URL", ""):
        return None
    url = reader.url("LUMINET_AGENT_REDIS_URL", REDIS_SCHEMES)
    if "@" in urlsplit(url).netloc:
        reader.reject("LUMINET_AGENT_REDIS_URL", "takes no user or password: every agent is given its own")
    if {name for name, _ in parse_qsl(urlsplit(url).query)} & REDIS_SECRETS:
        names = ", ".join(sorted(REDIS_SECRETS))
        reader.reject("LUMINET_AGENT_REDIS_URL", f"takes none of {names} after the question mark: agents read it")
    return broker_url_verified(url)


def _join_token(reader: SettingsReader) -> str | None:
    token = reader.optional_text_secret("LUMINET_JOIN_TOKEN")
    if token is not None and not JOIN_TOKEN.fullmatch(token):
        reader.reject("LUMINET_JOIN_TOKEN", "is no join token; `luminet secrets` prints one")
        return None
    return token


def _hosts(reader: SettingsReader) -> tuple[str, ...]:
    hosts = reader.words("LUMINET_ALLOWED_HOSTS")
    for host in hosts:
        if host.startswith(("*", ".")) or "/" in host or " " in host:
            reader.reject("LUMINET_ALLOWED_HOSTS", f"{host!r} is no host name: name each one, without scheme or path")
    return hosts


def _demo_gateway(reader: SettingsReader) -> str | None:
    return reader.url("LUMINET_DEMO_GATEWAY", ("http",)) if reader.text("LUMINET_DEMO_GATEWAY", "") else None


def _anchor_sinks(reader: SettingsReader) -> AnchorSinks:
    file = reader.text("LUMINET_AUDIT_ANCHOR_FILE", "")
    if file and not Path(file).is_absolute():
        reader.reject("LUMINET_AUDIT_ANCHOR_FILE", f"{file!r} must be an absolute path")
    syslog = reader.text("LUMINET_AUDIT_ANCHOR_SYSLOG", "")
    parts = urlsplit(syslog)
    if syslog and not (parts.hostname if parts.scheme == "udp" else parts.scheme == "unix" and parts.path):
        problem = f"{syslog!r} must be udp://HOST:PORT or unix:///PATH"
        reader.reject("LUMINET_AUDIT_ANCHOR_SYSLOG", problem)
    webhook = reader.text("LUMINET_AUDIT_ANCHOR_WEBHOOK", "")
    if webhook:
        reader.url("LUMINET_AUDIT_ANCHOR_WEBHOOK", ("https", "http"))
    secret = reader.optional_text_secret("LUMINET_AUDIT_ANCHOR_WEBHOOK_SECRET")
    if webhook and secret is None:
        reader.reject("LUMINET_AUDIT_ANCHOR_WEBHOOK_SECRET", "is required: what goes to the webhook is signed with it")
    return AnchorSinks(Path(file) if file else None, syslog or None, webhook or None, secret)


def _webhook_hosts(reader: SettingsReader) -> tuple[str, ...]:
    hosts = reader.words("LUMINET_WEBHOOK_HOSTS")
    for host in hosts:
        if not WEBHOOK_HOST.fullmatch(host):
            problem = "is neither host nor host:port in small letters; an IPv6 address goes without brackets and port"
            reader.reject("LUMINET_WEBHOOK_HOSTS", f"{host!r} {problem}")
    return hosts


def _networks(reader: SettingsReader) -> Iterator[Network]:
    for network in reader.words("LUMINET_TRUSTED_PROXIES", ("127.0.0.1",)):
        try:
            yield ipaddress.ip_network(network, strict=False)
        except ValueError:
            reader.reject("LUMINET_TRUSTED_PROXIES", f"{network!r} is neither an address nor a network")


def _check_base_url(reader: SettingsReader, base_url: str) -> None:
    parts = urlsplit(base_url)
    if parts.path or parts.query or parts.fragment:
        reader.reject("LUMINET_BASE_URL", "takes scheme, host and port only, no path")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        reader.reject("LUMINET_BASE_URL", "http is for loopback only; put TLS in front and use https")


def _spelled_host(base_url: str) -> str:
    """Return the host as browsers write it in their Host header: IPv6 in brackets."""
    host = urlsplit(base_url).hostname or "localhost"
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
