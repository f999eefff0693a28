"""Send a run's results to a control plane, which approves formats by them."""

import json
import os
from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

from engine_agent.http.redirects import Stays
from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality.artefact import Artefact, document

PATH = "/api/v1/quality"
SECONDS = 30
_OPENER = build_opener(Stays)


def publishing_checked(is_quick: bool, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the URL and the token, before minutes are spent on a measurement. Raises ToolError."""
    if is_quick:
        raise ToolError("a quick run decides nothing: leave out --quick or --publish")
    url, token = (environ.get(name, "").strip().rstrip("/") for name in ("LUMINET_URL", "LUMINET_TOKEN"))
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ToolError("--publish: LUMINET_URL is no http or https address of a control plane")
    if not token:
        raise ToolError("--publish: LUMINET_TOKEN is not set; an operator's token is needed")
    return url, token


def publish(artefact: Artefact, model: str, *, url: str, token: str) -> list[str]:
    """Publish an artefact under the agents' model name. Return each format with its stored result. Raises ToolError."""
    body = document(artefact)
    request = Request(  # publishing_checked has checked the scheme
        url + PATH,
        data=json.dumps({"model": model, "artefact": body}).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"quality-{body['digest']}",
        },
    )
    try:
        with _OPENER.open(request, timeout=SECONDS) as answer:
            results = json.loads(answer.read())["results"]
    except HTTPError as refused:
        raise ToolError(f"{url}: {_why(refused)}") from None
    except (URLError, HTTPException, OSError, ValueError, KeyError) as problem:
        raise ToolError(f"{url}: {problem}") from None
    return [f"{format_result['kv_dtype']} {format_result['verdict']}" for format_result in results]


def _why(refused: HTTPError) -> str:
    try:
        problem = json.loads(refused.read())
        return f"{refused.code}: {problem['detail']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"answers with status {refused.code}"
