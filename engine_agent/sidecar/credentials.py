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


def credentials_told(told: Mapping[str, Any], *, url: str, token: str | None = None) -> Credentials:
    """Build credentials from the control plane's answer. Use `token` if the answer has none. Raise BadCredentials."""
    try:
        found = Credentials(
            url=url,
            agent=str(told["agent"]),
            kind=str(told["kind"]),
            group=str(told["group"]),
            token=str(told["token"] or token or ""),
            key_number=int(told["key_number"]),
            broker={name: str(told["broker"][name]) for name in ("url", "prefix", "queue")},
            keys={name: told["keys"].get(name) for name in ("verifying", "sealing", "identity", "check")},
            cadence_seconds=float(told["cadence_seconds"]),
        )
        found.command_keys()
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadCredentials(f"the control plane's credentials lack or spoil {problem}") from None
    if not found.token or len(found.sealing_key) != KEY_BYTES:
        raise BadCredentials("the control plane's credentials have no token, or no key of 32 bytes")
    return found


def credentials_read(home: Path) -> Credentials | None:
    """Return the saved credentials, or None before enrolment. Raise BadCredentials if they are damaged."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / FILE
    try:
        kept = Credentials(**json.loads(path.read_text(encoding="utf-8")))
        found = replace(kept, plain_http_hosts=tuple(map(str, kept.plain_http_hosts)))
        _check(found)
        return found
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise BadCredentials(f"{path}: {problem}; delete it and join again") from None


def _check(found: Credentials) -> None:
    """Raise ValueError if the file is damaged, because the damage would surface later with an unclear error."""
    broker = (found.broker[name] for name in ("url", "prefix", "queue"))
    told: tuple[object, ...] = (found.url, found.agent, found.kind, found.group, found.token, *broker)
    number: object = found.key_number
    if not all(isinstance(one, str) and one for one in told) or not isinstance(number, int):
        raise ValueError("a value is missing or of another type")
    found.command_keys()
    if len(found.sealing_key) != KEY_BYTES or not 0 < found.cadence_seconds < LONGEST_CADENCE_SECONDS:
        raise ValueError("the sealing key or the cadence is none")


def credentials_keep(home: Path, credentials: Credentials) -> None:
    replace_file(home / FILE, json.dumps(asdict(credentials), indent=1).encode() + b"\n")


def with_broker_at(credentials: Credentials, place: str) -> Credentials:
    """Replace the broker's address and keep the login. Raise BadAddress if the address is invalid."""
    told, ours = urlsplit(credentials.broker["url"]), urlsplit(place)
    if ours.scheme not in ("redis", "rediss") or not ours.hostname or ours.username or ours.password:
        raise BadAddress(
            f"--broker: {ours.hostname or place[:200]}: is no address like rediss://broker.example.com:6380/0"
        )
    login = told.netloc.rpartition("@")[0]
    url = urlunsplit(ours._replace(netloc=f"{login}@{ours.netloc}" if login else ours.netloc))
    return replace(credentials, broker={**credentials.broker, "url": url})


def with_token(credentials: Credentials, token: str) -> Credentials:
    return replace(credentials, token=token)
