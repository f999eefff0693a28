"""The engines' own counters for a namespace, read from /metrics at the address that each engine reported."""

import http.client
import re
from dataclasses import dataclass
from typing import Final
from urllib.error import URLError

from django.conf import settings

from controlplane.common.health import http_get
from controlplane.fleet.selectors import agents_living
from tenants.models import Namespace

SECONDS: Final = 2.0
_LINE: Final = re.compile(r"^luminet_(prompt|cached)_tokens_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counted:
    requests: int
    prompt_tokens: int
    cached_tokens: int

    def __sub__(self, before: "Counted") -> "Counted":
        return Counted(
            self.requests - before.requests,
            self.prompt_tokens - before.prompt_tokens,
            self.cached_tokens - before.cached_tokens,
        )


def engines_counted(namespace: Namespace) -> Counted | None:
    """Return the sum over all engines, or None if an engine does not answer or reported no address."""
    addresses = [agent.about.get("address") for agent in agents_living().filter(kind="engine").order_by("id")]
    if not addresses or not all(addresses):
        return None
    try:
        texts = [_metrics(str(address)) for address in addresses]
    except (OSError, URLError, http.client.HTTPException, ValueError):
        return None
    return counted_in(texts, organisation=namespace.organisation.slug, namespace=namespace.slug)


def _metrics(address: str) -> str:
    """Fetch the metrics as Prometheus does, with the fleet's metrics token; an engine without a token ignores it."""
    token = settings.ENVIRONMENT.metrics_token
    return http_get(f"{address}/metrics", timeout_seconds=SECONDS, bearer=token).decode()


def counted_in(texts: list[str], *, organisation: str, namespace: str) -> Counted:
    """Return the tokens that these metrics count for the namespace. Pure. It does not count requests."""
    required_labels = (f'organisation="{organisation}"', f'namespace="{namespace}"')
    tokens = {"prompt": 0, "cached": 0}
    for text in texts:
        for name, labels, value in _LINE.findall(text):
            if all(label in labels.split(",") for label in required_labels):
                tokens[name] += int(float(value))
    return Counted(0, tokens["prompt"], tokens["cached"])
