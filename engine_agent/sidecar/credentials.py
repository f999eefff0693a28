"""This agent's identity and secrets, as issued at enrolment. Only the owner may read the file."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from engine_agent.contracts.sealing import verifying_key
from engine_agent.sidecar.commands import Keys
from engine_agent.sidecar.errors import BadAddress, BadCredentials
from engine_agent.sidecar.spool import replace_file

FILE = "credentials"
KEY_BYTES = 32
LONGEST_CADENCE_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Credentials:
    url: str  # of the control plane
    agent: str
    kind: str
    group: str
    token: str = field(repr=False)
    key_number: int
    broker: Mapping[str, str] = field(repr=False)  # url, prefix, queue
    keys: Mapping[str, str | None] = field(repr=False)  # verifying, sealing, identity, check: in base64
    cadence_seconds: float = 0.5
    # Hosts allowed when the agent joined, saved so that the next start needs no option.
    plain_http_hosts: tuple[str, ...] = ()

    @property
    def sealing_key(self) -> bytes:
        return base64.b64decode(self.keys["sealing"] or "")

    def command_keys(self) -> Keys:
        return Keys(self.agent, self.sealing_key, verifying_key(base64.b64decode(self.keys["verifying"] or "")))


def credentials_told(answer: Mapping[str, Any], *, url: str, token: str | None = None) -> Credentials:
    """Build credentials from the control plane's answer. Use `token` if the answer has none. Raise BadCredentials."""
    try:
        credentials = Credentials(
            url=url,
            agent=str(answer["agent"]),
            kind=str(answer["kind"]),
            group=str(answer["group"]),
            token=str(answer["token"] or token or ""),
            key_number=int(answer["key_number"]),
            broker={name: str(answer["broker"][name]) for name in ("url", "prefix", "queue")},
            keys={name: answer["keys"].get(name) for name in ("verifying", "sealing", "identity", "check")},
            cadence_seconds=float(answer["cadence_seconds"]),
        )
        credentials.command_keys()
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadCredentials(f"the control plane's credentials lack or spoil {problem}") from None
    if not credentials.token or len(credentials.sealing_key) != KEY_BYTES:
        raise BadCredentials("the control plane's credentials have no token, or no key of 32 bytes")
    return credentials


def credentials_read(home: Path) -> Credentials | None:
    """Return the saved credentials, or None before enrolment. Raise BadCredentials if they are damaged."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / FILE
    try:
        stored = Credentials(**json.loads(path.read_text(encoding="utf-8")))
        credentials = replace(stored, plain_http_hosts=tuple(map(str, stored.plain_http_hosts)))
        _check(credentials)
        return credentials
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise BadCredentials(f"{path}: {problem}; delete it and join again") from None


def _check(credentials: Credentials) -> None:
    """Raise ValueError if the file is damaged, because the damage would surface later with an unclear error."""
    broker = (credentials.broker[name] for name in ("url", "prefix", "queue"))
    texts: tuple[object, ...] = (
        credentials.url,
        credentials.agent,
        credentials.kind,
        credentials.group,
        credentials.token,
        *broker,
    )
    number: object = credentials.key_number
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(number, int):
        raise ValueError("a value is missing or of another type")
    credentials.command_keys()
    if len(credentials.sealing_key) != KEY_BYTES or not 0 < credentials.cadence_seconds < LONGEST_CADENCE_SECONDS:
        raise ValueError("the sealing key or the cadence is none")


def credentials_keep(home: Path, credentials: Credentials) -> None:
    replace_file(home / FILE, json.dumps(asdict(credentials), indent=1).encode() + b"\n")


def with_broker_at(credentials: Credentials, address: str) -> Credentials:
    """Replace the broker's address and keep the login. Raise BadAddress if the address is invalid."""
    published, override = urlsplit(credentials.broker["url"]), urlsplit(address)
    if override.scheme not in ("redis", "rediss") or not override.hostname or override.username or override.password:
        raise BadAddress(
            f"--broker: {override.hostname or address[:200]}: is no address like rediss://broker.example.com:6380/0"
        )
    login = published.netloc.rpartition("@")[0]
    url = urlunsplit(override._replace(netloc=f"{login}@{override.netloc}" if login else override.netloc))
    return replace(credentials, broker={**credentials.broker, "url": url})


def with_token(credentials: Credentials, token: str) -> Credentials:
    return replace(credentials, token=token)
