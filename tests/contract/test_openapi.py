import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any, get_args
from urllib.parse import urldefrag, urljoin

import pytest
from django.http import HttpRequest
from django.test import Client

from controlplane.api.body_limit import ProblemType
from controlplane.api.docs import slug
from controlplane.api.problem_json import CONTENT_TYPE
from controlplane.api.problems import MEANINGS
from controlplane.api.routing import OPERATIONS, Call, Operation
from tenants.actor import SYSTEM
from tenants.config.document import config_schema
from tenants.levels import Place
from tenants.policy import BUILT_IN
from tests.web.openapi import SNAPSHOT, document, snapshot_text

JSON = "application/json"

# PRODUCT's table, as far as it is real. A line that is gone or a path that is too much fails.
PATHS = """
GET|POST /orgs                          GET|PATCH|DELETE /orgs/{org}
GET|POST /orgs/{org}/members            GET|PATCH|DELETE /orgs/{org}/members/{member_id}
POST /orgs/{org}/members/{member_id}/link
GET|POST /orgs/{org}/keys               DELETE /orgs/{org}/keys/{key_id}
GET|POST /orgs/{org}/namespaces         GET|PATCH|DELETE /orgs/{org}/namespaces/{ns}
GET|PUT /policy                         POST /policy/preview
GET /policy/effective                   GET /policy/revisions
GET /policy/revisions/{number}          POST /policy/rollback
GET|PUT /orgs/{org}/policy              POST /orgs/{org}/policy/preview
GET /orgs/{org}/policy/effective        GET /orgs/{org}/policy/revisions
GET /orgs/{org}/policy/revisions/{number}   POST /orgs/{org}/policy/rollback
GET|PUT /orgs/{org}/namespaces/{ns}/policy  POST /orgs/{org}/namespaces/{ns}/policy/preview
GET /orgs/{org}/namespaces/{ns}/policy/effective   GET /orgs/{org}/namespaces/{ns}/policy/revisions
GET /orgs/{org}/namespaces/{ns}/policy/revisions/{number}   POST /orgs/{org}/namespaces/{ns}/policy/rollback
GET|PUT /orgs/{org}/bounds              GET|PUT /orgs/{org}/limits
POST /orgs/{org}/purge                  POST /orgs/{org}/namespaces/{ns}/purge
GET /fleet/agents                       GET|PATCH|DELETE /fleet/agents/{agent_id}
POST /fleet/agents/{agent_id}/drain     POST /fleet/agents/{agent_id}/resume
POST /fleet/agents/{agent_id}/integrity POST /fleet/agents/{agent_id}/rotate-token
GET|POST /fleet/join-tokens             GET|DELETE /fleet/join-tokens/{join_token_id}
GET|POST /orgs/{org}/namespaces/{ns}/pins   DELETE /orgs/{org}/namespaces/{ns}/pins/{pin_id}
GET /rollouts                           GET /rollouts/{rollout_id}
POST /rollouts/{rollout_id}/pause       POST /rollouts/{rollout_id}/resume
POST /rollouts/{rollout_id}/abort       POST /rollouts/{rollout_id}/promote
GET|POST /quality                       POST /quality/override
GET|PUT /prices                         GET /orgs/{org}/invoice
GET /orgs/{org}/stats                   GET /orgs/{org}/stats/series
GET /fleet/stats                        GET /fleet/stats/series
GET /alerts                             POST /alerts/{alert_id}/acknowledge
POST /alerts/{alert_id}/silence         GET|POST /alert-rules
PATCH|DELETE /alert-rules/{rule_id}
GET /operations/{operation_id}          GET /audit
GET /orgs/{org}/namespaces/{ns}/what-if  GET /fleet/reconciliation
GET /orgs/{org}/namespaces/{ns}/diagnostics
GET /orgs/{org}/namespaces/{ns}/evictions  GET /fleet/evictions
POST /lint/prompt
GET|PUT /demo-traffic
GET /whoami                             GET|POST /operator-tokens
DELETE /operator-tokens/{token_id}      GET|POST /agent-groups
DELETE /agent-groups/{slug}             GET /config
GET /config/schema                      POST /config/plan
POST /config/apply                      GET /models
POST /calculator/kv
"""


# None of these is made when the file is collected: a process that runs none of its tests has no use for them.


@cache
def described() -> dict[str, Any]:
    """Return the whole description, as it is served."""
    return document()


def component_schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = described()["components"]["schemas"]
    return schemas


@cache
def operations() -> dict[str, dict[str, Any]]:
    """Return what the description has of each operation, by its name."""
    by_name = {one["operationId"]: one for methods in described()["paths"].values() for one in methods.values()}
    assert by_name
    return by_name


def registered() -> list[Operation]:
    """Return every operation there is: modules register theirs when the description is first made."""
    described()
    assert OPERATIONS
    return OPERATIONS


def misfits(example: Any, schema: dict[str, Any]) -> list[str]:
    """Return what is wrong with an example of a schema, to which the components are added that it may refer to."""
    from openapi_schema_validator import OAS31Validator, oas31_format_checker

    whole = {**schema, "components": described()["components"]}
    return [error.message for error in OAS31Validator(whole, format_checker=oas31_format_checker).iter_errors(example)]


def resolved(found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in found:
        return found
    _, _, kind, name = found["$ref"].split("/")
    component: dict[str, Any] = described()["components"][kind][name]
    return component


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place where a body is described: requests, answers and refusals."""
    for name, operation in operations().items():
        contents = [operation.get("requestBody", {}), *map(resolved, operation["responses"].values())]
        yield from ((name, media) for one in contents for media in one.get("content", {}).values())


def test_the_snapshot_is_what_is_served() -> None:
    assert SNAPSHOT.read_text(encoding="utf-8") == snapshot_text(), "run `make openapi` and look at the difference"


def test_it_is_valid_openapi() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(described()).validate()


def test_it_has_the_paths_of_the_product_and_no_others() -> None:
    promised = {
        (method, path) for methods, path in re.findall(r"([A-Z|]+) (/\S+)", PATHS) for method in methods.split("|")
    }
    paths = {(method.upper(), path) for path, methods in described()["paths"].items() for method in methods}
    assert paths == promised
    assert paths == {(one.method, one.path) for one in registered()}


def test_every_operation_says_what_it_does_and_who_may_call_it(subtests: pytest.Subtests) -> None:
    for name in operations():
        with subtests.test(msg=name):
            operation = operations()[name]
            assert operation["summary"][0].isupper()
            assert not operation["summary"].endswith(".")
            assert operation["description"]
            assert operation["x-luminet-who"].endswith(".")
            assert [one["name"] for one in described()["tags"]].count(*operation["tags"]) == 1
            assert all(one["description"] for one in described()["tags"])


def test_no_two_operations_have_one_name_or_one_summary() -> None:
    every = [one for methods in described()["paths"].values() for one in methods.values()]
    for what in ("operationId", "summary"):
        assert len({one[what] for one in every}) == len(every)


def test_every_body_has_an_example_that_fits() -> None:
    checked = 0
    for name, media in bodies():
        assert misfits(media["example"], media["schema"]) == [], name
        checked += 1
    assert checked > 5 * len(operations())


def test_an_example_that_does_not_fit_would_be_found() -> None:
    example = {**operations()["keys_list"]["responses"]["200"]["content"][JSON]["example"]["items"][0], "id": "no uuid"}
    assert len(misfits(example, {"$ref": "#/components/schemas/KeyShown"})) == 1


def test_every_refusal_is_a_problem_and_they_are_the_same_for_all(subtests: pytest.Subtests) -> None:
    for name in operations():
        with subtests.test(msg=name):
            answers = operations()[name]["responses"]
            assert {"400", "401", "429", "503"} <= set(answers)
            for status, found in answers.items():
                if status >= "400":
                    answer = resolved(found)
                    assert list(answer["content"]) == [CONTENT_TYPE]
                    assert answer["content"][CONTENT_TYPE]["example"]["status"] == int(status)
            assert ("requestBody" in operations()[name]) is ("415" in answers) is ("413" in answers)


def test_headers_are_described_where_they_count(subtests: pytest.Subtests) -> None:
    for operation in registered():
        with subtests.test(msg=operation.name):
            found = operations()[operation.name]
            asked = {one["name"]: one for one in map(resolved, found["parameters"]) if one["in"] == "header"}
            assert ("If-Match" in asked) is operation.wants_if_match is ("428" in found["responses"])
            assert ("412" in found["responses"]) is (operation.wants_if_match or "stale" in operation.refuses)
            assert ("Idempotency-Key" in asked) is (operation.method in ("POST", "PUT"))
            answer = found["responses"][str(operation.status)]
            assert {"RateLimit", "RateLimit-Policy"} <= set(answer["headers"])
            assert ("ETag" in answer["headers"]) is operation.gives_etag
            assert ("304" in found["responses"]) is (operation.gives_etag and operation.method == "GET")


def test_what_has_a_revision_wants_it_back() -> None:
    """PRODUCT: PUT, PATCH, rollback and DELETE of revisioned things. Members and keys have no revisions."""
    wanted = {(one.method, one.path) for one in registered() if one.wants_if_match}
    revisioned = {one.path for one in registered() if one.method == "GET" and one.gives_etag}
    changes = {(one.method, one.path) for one in registered() if one.method in ("PUT", "PATCH", "DELETE")}
    rollbacks = {("POST", one.path) for one in registered() if one.path.endswith("/rollback")}
    assert wanted == {(method, path) for method, path in changes if path in revisioned} | rollbacks


def test_every_parameter_is_described(subtests: pytest.Subtests) -> None:
    for name in operations():
        with subtests.test(msg=name):
            for one in map(resolved, operations()[name]["parameters"]):
                assert one["description"].endswith("."), one["name"]
                assert one["in"] == "query" or "example" in one


def test_every_field_that_may_be_sent_says_what_it_means() -> None:
    todo = [
        operation["requestBody"]["content"][JSON]["schema"]
        for operation in operations().values()
        if "requestBody" in operation
    ]
    silent, seen = set(), set()
    while todo:
        name = todo.pop()["$ref"].rpartition("/")[2]
        if name in seen:
            continue
        seen.add(name)
        for field, schema in component_schemas()[name].get("properties", {}).items():
            inner = list(references(schema))
            todo += inner
            if not says_something(name, field, schema, inner):
                silent.add(f"{name}.{field}")
    assert silent == set()
    assert {"Policy", "Bounds", "Limits", "SecondsRange", "PinCreate"} <= seen


def sent_schemas() -> set[str]:
    """The names of all schemas that request bodies are made of."""
    todo = [one for operation in operations().values() for one in references(operation.get("requestBody"))]
    names: set[str] = set()
    while todo:
        if (name := todo.pop()["$ref"].rpartition("/")[2]) not in names:
            names.add(name)
            todo += references(component_schemas()[name])
    return names


def keyword_places(schema: Any, keyword: str, place: str = "") -> Iterator[str]:
    """Where a schema uses a keyword; members and examples that are called like it do not count."""
    if isinstance(schema, dict):
        if keyword in schema:
            yield place
        for name, inner in schema.items():
            if name in ("properties", "$defs"):
                for member, one in inner.items():
                    yield from keyword_places(one, keyword, f"{place}.{member}")
            elif name not in ("examples", "example"):
                yield from keyword_places(inner, keyword, place)
    elif isinstance(schema, list):
        for one in schema:
            yield from keyword_places(one, keyword, place)


def test_request_schemas_have_no_defaults() -> None:
    """A generated client sends the defaults it knows: a field left out would no longer inherit."""
    names = sent_schemas()
    assert {"Policy", "PolicyFields", "RolloutSpec", "Guards", "Purge", "Limits"} <= names
    assert [
        place for name in sorted(names) for place in keyword_places(component_schemas()[name], "default", name)
    ] == []


def test_file_schema_has_no_defaults() -> None:
    schema = config_schema()
    assert {"Policy", "Limits"} <= schema["$defs"].keys()
    assert list(keyword_places(schema, "default")) == []


def test_policy_descriptions_name_fleet_defaults(subtests: pytest.Subtests) -> None:
    for kind, schemas in {"requests": component_schemas(), "file": config_schema()["$defs"]}.items():
        with subtests.test(msg=kind):
            for model in ("Policy", "PolicyFields"):
                for name, default in BUILT_IN.items():
                    words = schemas[model]["properties"][name]["description"]
                    assert words.endswith(f"Inherits when left out; the fleet default is `{json.dumps(default)}`.")


def test_optional_bodies_are_not_required() -> None:
    """A POST whose body has no required member takes none; two of them need one of two members."""
    optional, without_required = set(), set()
    for name, operation in operations().items():
        if "requestBody" in operation:
            schema = resolved(operation["requestBody"]["content"][JSON]["schema"])
            optional |= set() if operation["requestBody"]["required"] else {name}
            without_required |= set() if "required" in schema else {name}
    posts = {one.name for one in registered() if one.method == "POST"}
    assert optional == (without_required & posts) - {"alert_silence", "calculator_kv"}
    assert optional == {"alert_acknowledge", "namespace_purge", "organisation_purge"}


def test_no_answer_is_a_union_of_media_types() -> None:
    for name, operation in operations().items():
        for status, answer in operation["responses"].items():
            assert len(resolved(answer).get("content", {})) <= 1, (name, status)


def references(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema
        for one in schema.values():
            yield from references(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from references(one)


def says_something(name: str, field: str, schema: dict[str, Any], inner: list[dict[str, Any]]) -> bool:
    """Itself, one of its alternatives, the object it holds, or the object it is in."""
    if "description" in schema or any("description" in one for one in schema.get("anyOf", [])):
        return True
    if any("description" in resolved(one) for one in inner):
        return True
    return f"`{field}`" in component_schemas()[name].get("description", "")


def test_the_address_is_public_cached_by_its_tag_and_json(client: Client) -> None:
    answer = client.get("/api/v1/openapi.json")
    assert answer.status_code == 200
    assert answer.json() == described()
    again = client.get("/api/v1/openapi.json", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", answer["ETag"])
    refused = client.post("/api/v1/openapi.json")
    assert (refused.status_code, refused["Content-Type"], refused["Allow"]) == (405, CONTENT_TYPE, "GET, HEAD")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        if "src" in found or tag == "link":
            self.sources.append(found.get("src") or found["href"])


DOCS = "/api/v1/docs"


@pytest.fixture(scope="module")
def docs() -> dict[str, Page]:
    """Return every page of the reference by its address, rendered once for all tests that read them."""
    groups = [slug(one["name"]) for one in described()["tags"]]
    addresses = [DOCS, *(f"{DOCS}/{name}" for name in (*groups, "objects"))]
    answers = {address: Client().get(address) for address in addresses}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {address: Page(answer.content.decode()) for address, answer in answers.items()}


def test_every_link_within_the_reference_leads_somewhere(docs: dict[str, Page]) -> None:
    for address, page in docs.items():
        assert len(page.ids) == len(set(page.ids))
        for link in page.links:
            target, anchor = urldefrag(urljoin(address, link))
            if target.startswith(DOCS):
                assert target in docs, (address, link)
                assert not anchor or anchor in docs[target].ids, (address, link)


def test_reference_start_lists_every_operation_group_and_problem(docs: dict[str, Page]) -> None:
    start = docs[DOCS]
    wanted = {
        *operations(),
        *(slug(one["name"]) for one in described()["tags"]),
        *(f"problem-{kind}" for kind in MEANINGS),
    }
    assert wanted - set(start.ids) == set()
    assert "/api/v1/openapi.json" in start.links
    assert set(get_args(ProblemType)) <= set(MEANINGS)  # what is refused in front of Django


def test_every_operation_is_on_its_groups_page(docs: dict[str, Page]) -> None:
    for name, operation in operations().items():
        address = f"{DOCS}/{slug(operation['tags'][0])}"
        assert name in docs[address].ids
        assert f"{address}#{name}" in docs[DOCS].links


def test_reference_of_an_unknown_group_is_not_found(client: Client) -> None:
    answer = client.get(f"{DOCS}/nonsense")
    assert (answer.status_code, answer["Content-Type"]) == (404, CONTENT_TYPE)


def test_the_reference_loads_nothing_from_elsewhere(docs: dict[str, Page]) -> None:
    for page in docs.values():
        assert page.sources
        assert all(one.startswith("/static/") for one in page.sources)


def test_an_operation_that_does_not_say_so_cannot_ask_for_if_match() -> None:
    call = Call(HttpRequest(), SYSTEM, Place())
    with pytest.raises(LookupError, match="wants_if_match"):
        call.expected()
