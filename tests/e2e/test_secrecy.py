"""Whatever happens in a stack, no log, no journal and no command line has a secret in it, or a customer's words."""

import json
from typing import Any
from uuid import uuid4

import httpx

from tests.e2e.secrecy import leaks, remember
from tests.e2e.stack import Stack

WRONG = "an entirely wrong password"


def test_what_goes_well_and_what_goes_wrong_leaves_nothing_secret_behind(stack: Stack) -> None:
    signing_in(stack)
    links_and_keys(stack)
    prompts(stack)
    assert leaks(stack) == []


def test_what_is_planted_is_found(stack: Stack) -> None:
    """Each in a log of its own. The claim above could not fail otherwise."""
    planted = {
        "password": remember(stack, "planted", f"planted {uuid4()}"),
        "one_time_link": f"GET /invitation/{uuid4().hex}{'x' * 11}",
        "prompt": "What does the module json do, and when",
        "key": f"authorization: Bearer lmk_{'7' * 49}",
        "signing_key": (stack.home / "secrets" / "signing_key").read_text().strip(),
    }
    logs = {what: stack.home / "logs" / f"planted-{what}.log" for what in planted}
    try:
        for what, value in planted.items():
            logs[what].write_text(f"12:00:00 info request {value}\n")
        assert {one.split(":")[0] for one in leaks(stack)} == {f"logs/planted-{what}.log" for what in planted}
    finally:
        for log in logs.values():
            log.unlink(missing_ok=True)


def signing_in(stack: Stack) -> None:
    demo = stack.demo["operator"]
    with httpx.Client(base_url=stack.web, trust_env=False) as client:
        client.get("/sign-in")
        form = {"csrfmiddlewaretoken": client.cookies["luminet_csrf"], "email": demo["email"]}
        assert client.post("/sign-in", data={**form, "password": remember(stack, "typed", WRONG)}).status_code == 422
        assert client.post("/sign-in", data={**form, "csrfmiddlewaretoken": "x" * 64}).status_code == 403
        assert client.post("/sign-in", data={**form, "password": demo["password"]}).status_code == 302
        for name, value in client.cookies.items():
            remember(stack, name, value)
        assert client.get("/").status_code == 200


def links_and_keys(stack: Stack) -> None:
    with rest(stack) as operator:
        email = f"{uuid4().hex[:8]}@acme.example"
        invited = operator.post("/orgs/acme/members", json={"email": email, "role": "viewer"}).json()
        link = remember(stack, "invitation", invited["invitation_url"].rpartition("/")[2])
        made = operator.post("/orgs/acme/keys", json={"name": "secrecy", "scopes": ["infer", "policy:read"]}).json()
        remember(stack, "key", made["secret"])
        operator.delete(f"/orgs/acme/keys/{made['id']}")
        joining = {"name": "secrecy", "expires_in_seconds": 600}
        remember(stack, "join token", operator.post("/fleet/join-tokens", json=joining).json()["secret"])
        rule = {"name": "secrecy", "metric": "hit_ratio", "comparison": "below", "threshold": 0.1, "place": "acme"}
        told = operator.post("/alert-rules", json={**rule, "webhook_url": "https://hooks.acme.example/x"}).json()
        remember(stack, "webhook secret", told["webhook_secret"])
        operator.delete(f"/alert-rules/{told['id']}")
    with httpx.Client(base_url=stack.web, trust_env=False) as client:
        for path in (f"/invitation/{link}", f"/invitation/{link}/", f"/invitation/{link}?x=1", f"/reset/{link}"):
            client.get(path)
        assert client.post(f"/invitation/{link}", data={"new": WRONG, "again": WRONG}).status_code == 403
        assert client.get("/api/v1/orgs", headers={"authorization": f"Bearer {made['secret']}"}).status_code == 401


def prompts(stack: Stack) -> None:
    """Answered, streamed, refused for every reason, pinned and looked at: none of it is anybody else's to read."""
    words = remember(stack, "prompt", f"the {uuid4().hex} treaty of the {uuid4().hex} islands")
    key = stack.demo["orgs"][0]["api_key"]
    good: dict[str, Any] = {"model": "luminet-demo", "messages": [{"role": "user", "content": words}], "max_tokens": 24}
    bad = [{**good, "max_tokens": words}, {**good, "model": words}, {**good, "temperature": [words]}, {words: words}]
    with httpx.Client(base_url=stack.gateway, trust_env=False, timeout=60) as client:
        headers = {"authorization": f"Bearer {key}"}
        answer = client.post("/v1/chat/completions", json={**good, "temperature": 0}, headers=headers)
        assert answer.status_code == 200
        remember(stack, "answer", answer.json()["choices"][0]["message"]["content"])
        assert client.post("/v1/chat/completions", json={**good, "stream": True}, headers=headers).status_code == 200
        assert {client.post("/v1/chat/completions", json=one, headers=headers).status_code for one in bad} <= {400, 404}
        broken = json.dumps(good)[:-1].encode()
        assert client.post("/v1/chat/completions", content=broken, headers=headers).status_code == 400
        strange = {**headers, "x-luminet-namespace": words, "x-request-id": words}
        assert client.post("/v1/chat/completions", json=good, headers=strange).status_code == 404
        assert client.post("/v1/chat/completions", json=good, headers={"authorization": words}).status_code == 401
    with rest(stack) as operator:
        operator.post(
            "/orgs/acme/namespaces/default/pins", json={"name": "x", "model": "luminet-demo", "prompt": words}
        )
        operator.post("/lint/prompt", json={"prompts": [words, f"{words} again"]})
        operator.post("/lint/prompt", json={"prompts": words})


def rest(stack: Stack) -> httpx.Client:
    headers = {"authorization": f"Bearer {stack.demo['operator']['token']}"}
    return httpx.Client(base_url=f"{stack.web}/api/v1", headers=headers, trust_env=False, timeout=60)
