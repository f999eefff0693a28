import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from controlplane.api.routing import OPERATIONS, Operation
from controlplane.fleet.quality_results import quality_override
from tenants.actor import SYSTEM
from tenants.levels import Place
from tenants.models import Namespace, Organisation
from tests.database.factories import make_agent, make_join_token, make_operator
from tests.database.undoing import undone
from tests.fleet.alerts import make_alert, make_alert_rule
from tests.fleet.rollouts import make_canary
from tests.web.api import make_operator_token, make_organisation
from tests.web.random_requests import (
    JSON,
    Answered,
    Sent,
    World,
    call,
    complaints,
    drawn,
    target_of,
    targets,
    world_make,
)

CALLERS = {  # and how many requests each makes to every operation
    "nobody": 1,
    "garbage": 1,
    "operator": 3,
    "operator, reading only": 1,
    "key with every scope": 2,
    "key, policy:read only": 1,
    "key, infer only": 1,
    "key bound to a namespace": 1,
    "key of a suspended organisation": 1,
}
MOST = max(CALLERS.values())


def send(sent: Sent) -> Answered:
    client = Client(raise_request_exception=False)
    kind = sent.headers.get("Content-Type", "application/octet-stream")
    response = client.generic(sent.method, sent.target, sent.body, content_type=kind, headers=dict(sent.headers))
    return Answered(response.status_code, dict(response.headers), response.content)


@pytest.fixture
def world(db: None) -> World:
    made = world_make(send, make_operator_token(make_operator()), "globex")
    return replace(made, ids=made.ids | with_a_fleet(made.ids["org"]) | with_an_alert(made.ids["org"]))


def with_a_fleet(slug: str) -> dict[str, str]:
    """What no request can make: engines, which can do what the description's examples ask for, and a canary on them."""
    formats = ["bf16", "fp8", "int8", "int4"]
    model = {"name": "m", "revision": "r1", "kv_dtypes": formats, "context_tokens": 2048}
    for name in ("agent-1", "agent-2"):
        make_agent(name, models=[model], kv_dtypes=formats)
    for kv_dtype in formats:
        quality_override(
            actor=SYSTEM, model="m", revision="r1", backend="simulated", kv_dtype=kv_dtype, note="No engine at all"
        )
    support = Namespace.objects.select_related("organisation").get(organisation__slug=slug, slug="support")
    rollout = make_canary(Place(support.organisation, support), "agent-1", "agent-2")
    return {"agent_id": "agent-1", "join_token_id": str(make_join_token()[0].pk), "rollout_id": str(rollout.pk)}


def with_an_alert(slug: str) -> dict[str, str]:
    """Which would need traffic, and time."""
    rule = make_alert_rule(Place(Organisation.objects.get(slug=slug)))
    return {"rule_id": str(rule.public_id), "alert_id": str(make_alert(rule).public_id)}


@pytest.mark.parametrize("caller", CALLERS)
def test_random_requests_are_answered_as_described(world: World, caller: str) -> None:
    found, statuses = [], set()
    for target in targets():
        for one in drawn(target.name, MOST, zlib.crc32(target.name.encode()))[: CALLERS[caller]]:
            sent = one.sent(world, world.tokens[caller])
            with undone():
                answer = send(sent)
            statuses.add(answer.status)
            found += [f"{target.name}: {complaint}\n  {sent}" for complaint in complaints(target, answer)]
    assert found == []
    assert statuses == {401} if caller in ("nobody", "garbage") else len(statuses) > 2


def test_the_checks_do_find_what_is_wrong(world: World) -> None:
    """The claim above could not fail otherwise."""
    target = target_of("organisation_get")
    problem = call(send, None, "GET", "/whoami")
    fine = call(send, world.tokens["operator"], "GET", "/orgs/globex")
    assert list(complaints(target, fine)) == []
    wrong = [
        Answered(500, {}, b""),
        Answered(418, {}, b""),
        Answered(401, {"Content-Type": JSON}, problem.body),
        Answered(400, problem.headers, problem.body.replace(b'"Authorization"', b'""')),
        Answered(200, {"Content-Type": "text/html"}, fine.body),
        Answered(200, fine.headers, fine.body.replace(b'"revision"', b'"version"')),
        Answered(304, {}, b"x"),
    ]
    assert [len(list(complaints(target, answer))) for answer in wrong] == [1] * len(wrong)


def test_every_example_of_the_description_does_what_it_says(world: World) -> None:
    """As the operator: each operation is reached, with the very body its page shows."""
    found = []
    for operation in OPERATIONS:
        with undone():
            found += [f"{operation.name}: {one}" for one in example_complaints(world, operation)]
    assert found == []


def place_make(body: Mapping[str, Any]) -> None:
    """What an example names as being there, and this world has not: `acme/chat`."""
    organisation, _, namespace = body.get("place", "").partition("/")
    if namespace:
        make_organisation(organisation, namespace)


def example_complaints(world: World, operation: Operation) -> Iterator[str]:
    target, token = target_of(operation.name), world.tokens["operator"]
    path = target.path.format(**world.ids)
    body = target.described.get("requestBody", {}).get("content", {}).get(JSON, {}).get("example")
    place_make(body or {})
    answer = call(send, token, operation.method, path, body, **({"If_Match": "*"} if operation.wants_if_match else {}))
    yield from complaints(target, answer)
    if answer.status != operation.status:
        yield f"expected {operation.status}, found {answer.status}: {answer.body.decode()}"
    promised = target.described["responses"][str(operation.status)]["headers"]
    sent = [name for name in ("ETag", "Location", "RateLimit", "RateLimit-Policy") if name in answer.headers]
    if sent != [name for name in promised if name != "Idempotency-Replayed"]:
        yield f"promised {list(promised)}, sent {sent}"
    if operation.gives_etag and operation.method == "GET":
        again = call(send, token, "GET", path, If_None_Match=answer.headers["ETag"])
        yield from (f"asked again: {again.status}" for _ in range(again.status != 304))
    if "Location" in sent:
        there = call(send, token, "GET", answer.headers["Location"].removeprefix("/api/v1"))
        yield from (f"its Location answers {there.status}" for _ in range(there.status != 200))
