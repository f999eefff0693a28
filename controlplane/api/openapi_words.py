"""Texts of the API's description that belong to no single operation: groups, parameters, headers, who may call."""

from typing import Any

from controlplane.api.idempotency_key import HEADER
from tenants.access import Rule
from tenants.models.organisations import SLUG_PATTERN

Document = dict[str, Any]

ABOUT = """\
Organisations, namespaces, cache policies, pins, keys and the audit trail of one inference fleet.

Send `Authorization: Bearer <token>` with an organisation's API key (`lmk_…`) or an operator's token (`lmo_…`).
Bodies are strict JSON; refusals are `application/problem+json` and name every field that is to blame.
Things with revisions answer with a strong `ETag` and want it back as `If-Match` before they change.
`Idempotency-Key` makes POST and PUT safe to repeat for 24 hours; a repeated answer has null for each secret.
Lists give `next_cursor`.
`RateLimit` says how many requests are left. The same at length: `/api/v1/docs`.
"""

BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "An organisation's API key (`lmk_…`) or an operator's token (`lmo_…`).",
}

TAGS = {
    "Organisations": "Customers of the fleet, and what operators set for them: bounds and limits.",
    "Namespaces": "The unit of cache isolation. Purges, and prefixes pinned in the cache.",
    "Policies": "What is cached, how long, in which format: for the fleet, an organisation or a namespace.",
    "Rollouts": "How published revisions come to the agents: all at once, or a few first, under guards.",
    "Configuration": "Organisations, namespaces and policies as one document: planned, then applied as a whole or not.",
    "Models": "What models' KV caches take in each format, what fits on an accelerator, and how fast at most.",
    "People and keys": "Members, API keys, operators' tokens, and who a token speaks for.",
    "Fleet": "Engines and gateways: what each is to hold and holds, what is wrong with it, and how new ones join.",
    "Quality": "Which KV formats may carry traffic on which models: measured, or let through by an operator.",
    "Numbers": "What caches were worth and would be under other policies, and whether all who count count the same.",
    "Prices and invoices": "What tokens cost from which day on, and what that comes to for an organisation, exactly.",
    "Alerts": "What is wrong with the numbers, by which rules, and who looks after it.",
    "Operations and audit": "What takes agents a while, what was done by whom, and the groups agents belong to.",
}

SCOPES = {
    "infer": "call the gateway's OpenAI API; for keys alone, and no part of any other scope",
    "stats:read": "read hit rates and what they saved",
    "policy:read": "read organisations, namespaces, policies, pins and operations",
    "policy:write": "publish and roll back policies, purge, pin; includes policy:read",
    "admin": "manage people, keys and namespaces, read the audit trail; includes every scope but infer",
}

_SLUG = {"type": "string", "pattern": SLUG_PATTERN}
PATH_PARAMETERS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "org": ("The organisation's slug.", _SLUG, "acme"),
    "ns": ("The namespace's slug.", _SLUG, "chat"),
    "slug": ("The agent group's slug.", _SLUG, "eu-h200"),
    "number": ("The revision's number.", {"type": "integer", "minimum": 1}, 7),
    "pin_id": ("The pin's id.", {}, None),
    "member_id": ("The member's id.", {}, None),
    "key_id": ("The key's id.", {}, None),
    "token_id": ("The token's id.", {}, None),
    "agent_id": ("The agent's id.", _SLUG, "agent-1"),
    "join_token_id": ("The join token's id.", {}, None),
    "rollout_id": ("The rollout's id, from the answer that published.", {}, None),
    "alert_id": ("The alert's id.", {}, None),
    "rule_id": ("The alert rule's id.", {}, None),
    "operation_id": ("The operation's id, from the answer that began it.", {}, None),
}
AN_ID = "6e8bc430-9c3a-4d0b-b1e5-5a0b6f0f4c11"

_TAG = r'^(\*|"[0-9]{1,9}")$'
_HELD_TAG = r'^(\*|(W/)?"[0-9a-f]{1,32}")$'
HEADER_PARAMETERS: dict[str, dict[str, Any]] = {
    "If-Match": {
        "description": "The ETag of the revision that is being changed; `*` for whichever is there.",
        "required": True,
        "schema": {"type": "string", "pattern": _TAG},
        "example": '"7"',
    },
    "If-None-Match": {
        "description": "An ETag you hold: the answer is 304 while it is still the current one.",
        "required": False,
        "schema": {"type": "string", "pattern": _HELD_TAG},
        "example": '"7"',
    },
    HEADER: {
        "description": "A word of your own, such as a UUID: sent again within 24 hours, the request is not done twice.",
        "required": False,
        "schema": {"type": "string", "pattern": r"^[A-Za-z0-9._:-]{1,255}$"},
        "example": "0f9b1f6c-2f0d-4c55-8a26-3c1c4b6f3a55",
    },
}

RESPONSE_HEADERS: dict[str, tuple[str, str]] = {
    "ETag": ("The revision, to be sent back as If-Match; of numbers a weak tag, the same until they move.", '"7"'),
    "Location": ("Where the thing can be read.", f"/api/v1/operations/{AN_ID}"),
    "Idempotency-Replayed": (
        "`true` when this is the answer kept from the first time, with null for each secret.",
        "true",
    ),
    "RateLimit": ("Requests left (`r`) and seconds until all are there again (`t`).", '"token";r=5999;t=1'),
    "RateLimit-Policy": ("Requests (`q`) each token may make in a window of seconds (`w`).", '"token";q=6000;w=60'),
    "Retry-After": ("Seconds to wait.", "1"),
    "WWW-Authenticate": ("How to say who you are.", 'Bearer realm="luminet"'),
}


def who(rule: Rule) -> str:
    """Return who may call an operation, as a sentence."""
    if rule.scope is None:
        return "Every token that is valid."
    if rule.operators_only:
        return f"Operators' tokens with `{rule.scope}`."
    bound = ", unless they are bound to namespaces" if rule.whole_organisation else ""
    closed = " A suspended organisation's keys are refused." if rule.writes else ""
    return f"The organisation's keys with `{rule.scope}`{bound}; operators' tokens with `{rule.scope}`.{closed}"


def reference(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def untitled(schema: Any) -> Any:
    """Remove the titles that pydantic makes from members' names, because they only repeat the name."""
    if isinstance(schema, list):
        return [untitled(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    members = {key: value for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    return {key: value if key in ("examples", "default", "enum") else untitled(value) for key, value in members.items()}
