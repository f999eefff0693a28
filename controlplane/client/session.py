"""Choose the control plane and token: from the environment, or from the stack that runs from this checkout."""

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from controlplane.client.errors import ClientError
from controlplane.client.rest import Rest

HERE = "http://127.0.0.1:8000"
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")


def connect(url: str | None, environ: Mapping[str, str] = os.environ, *, insecure: bool = False) -> Rest:
    url = (url or environ.get("LUMINET_URL", "")).strip()
    token = environ.get("LUMINET_TOKEN", "").strip()
    if not token:
        stack_url, token = _stack_access(url)
        url = url or stack_url
    if not _TOKEN.fullmatch(token):
        raise ClientError("LUMINET_TOKEN is no token: letters, digits and no spaces are expected")
    return Rest(url_checked(url or HERE, insecure=insecure), token)


def url_checked(url: str, *, insecure: bool) -> str:
    """Return the URL without trailing slash. Raise ClientError if the token would travel unencrypted."""
    parts = _parts(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientError(f"LUMINET_URL: {url!r} is no http or https address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ClientError("LUMINET_URL: only scheme, host, port and path belong into it")
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and not insecure:
        raise ClientError(f"{url}: a token would travel in clear; use https, or say --insecure")
    return url.rstrip("/")


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ClientError(f"LUMINET_URL: {url!r}: {error}") from None
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _stack_access(url: str) -> tuple[str, str]:
    """Return URL and operator's token of the stack that runs from here; the token is never sent to another address."""
    demo = _demo()
    if demo is None:
        raise ClientError("LUMINET_TOKEN is not set (an API key or an operator's token), and no stack runs from here")
    stack_url, operator = str(demo.get("web") or ""), demo.get("operator")
    if url and url.rstrip("/") != stack_url.rstrip("/"):
        raise ClientError(f"LUMINET_TOKEN is not set: an API key or an operator's token for {url}")
    token = operator.get("token") if isinstance(operator, dict) else None
    if not isinstance(token, str):
        advice = "make one with `luminet operator-token EMAIL`"
        raise ClientError(f"LUMINET_TOKEN is not set, and the stack that runs here keeps no token to use: {advice}")
    return stack_url, token


def _demo() -> Mapping[str, object] | None:
    """Return what the running stack wrote for programs, or None if no stack runs from here."""
    try:
        from controlplane.settings.reader import MalformedSettings
        from controlplane.stack.config import read_stack_config
        from controlplane.stack.leftovers import holder
    except ModuleNotFoundError:  # a machine with the client only
        return None
    try:
        config = read_stack_config(os.environ)
    except MalformedSettings as error:
        raise ClientError(str(error)) from None
    if holder(config.lock_file) is None:
        return None
    try:
        demo = json.loads(config.demo_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return demo if isinstance(demo, dict) else {}
