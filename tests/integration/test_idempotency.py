"""A request repeated with its key is answered again and done once. What a key may look like is tests/unit."""

import json
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.api.openapi import openapi_document
from controlplane.api.routing import OPERATIONS
from tenants.crypto import Unreadable, seal, unseal
from tenants.models import ApiKey, AuditRecord, IdempotentRequest, Organisation
from tenants.services import idempotency
from tenants.services.housekeeping import housekeeping
from tenants.services.idempotency import ANSWERS_KEPT, answer_place
from tests.database.text import database_text
from tests.support.threads import at_once
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
KEY = "a-key-of-their-choice"
BODY = {"name": "ci", "scopes": ["infer"]}


def create(api: Api, key: str = KEY, **body: object) -> HttpResponse:
    return api.post("/orgs/acme/keys", {**BODY, **body}, Idempotency_Key=key)


def made() -> int:
    return ApiKey.objects.filter(name="ci").count()


def age(**by: float) -> None:
    IdempotentRequest.objects.update(created_at=timezone.now() - timedelta(**by))


def test_replay_is_the_first_answer_without_its_secret(acme: Api) -> None:
    first, second = create(acme), create(acme)
    assert (first.status_code, second.status_code) == (201, 201)
    assert said(first)["secret"].startswith("lmk_")
    assert said(second) == {**said(first), "secret": None}
    assert list(said(second)) == list(said(first))
    assert (first.get("Idempotency-Replayed"), second["Idempotency-Replayed"]) == (None, "true")
    assert (made(), AuditRecord.objects.filter(verb="key.create", after__contains='"ci"').count()) == (1, 1)


RULE = {"name": "low", "metric": "hit_ratio", "comparison": "below", "threshold": 0.1, "place": "acme"}
SECRETS = {
    "/orgs/{org}/members": ("invitation_url", {"email": "kim@acme.example", "role": "viewer"}),
    "/orgs/{org}/members/{member_id}/link": ("url", {}),
    "/orgs/{org}/keys": ("secret", BODY),
    "/operator-tokens": ("secret", {"name": "ci", "scopes": ["stats:read"]}),
    "/fleet/join-tokens": ("secret", {"name": "ci", "expires_in_seconds": 600}),
    "/alert-rules": ("webhook_secret", {**RULE, "webhook_url": "https://hooks.acme.example/x"}),
}


def kept_in_clear() -> str:
    """What is kept of the one answer, opened as we would open it."""
    kept = IdempotentRequest.objects.get()
    assert kept.sealed_answer is not None
    return unseal(kept.sealed_answer, place=answer_place(kept.caller, KEY)).decode()


@pytest.mark.parametrize("path", SECRETS)
def test_no_secret_is_given_or_kept_twice(operator: Api, path: str) -> None:
    make_organisation()
    name, body = SECRETS[path]
    invited = said(operator.post("/orgs/acme/members", {"email": "lee@acme.example", "role": "viewer"}))
    address = path.format(org="acme", member_id=invited["id"])
    first, second = (operator.post(address, body, Idempotency_Key=KEY) for _ in range(2))
    assert (first.status_code, second.status_code, second["Idempotency-Replayed"]) == (201, 201, "true")
    secret = said(first)[name].rpartition("/")[2]
    assert len(secret) > 40
    assert said(second) == {**said(first), name: None}
    assert secret not in kept_in_clear()
    assert secret not in database_text()


def test_every_operation_that_gives_a_secret_is_declared() -> None:
    """By their answers: a new one with such a member has to say that it is shown once."""
    secret = re.compile(r"secret|^url$|invitation_url|password|token$")
    document = openapi_document()
    found = {}
    for one in (one for one in OPERATIONS if one.is_repeatable):
        content = document["paths"][one.path][one.method.lower()]["responses"][str(one.status)].get("content")
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2] if content else ""
        members = document["components"]["schemas"].get(name, {}).get("properties", {})
        found[one.path] = tuple(member for member in members if secret.search(member))
        assert one.secrets == found[one.path], one.path
    assert {path: names for path, names in found.items() if names} == {
        path: (name,) for path, (name, _) in SECRETS.items()
    }


def test_answer_kept_by_the_version_before_gives_no_secret(acme: Api) -> None:
    secret = said(create(acme))["secret"]
    kept = IdempotentRequest.objects.get()
    before = json.loads(kept_in_clear())
    before["body"] = json.dumps({**json.loads(before["body"]), "secret": secret})
    kept.sealed_answer = seal(json.dumps(before).encode(), place=answer_place(kept.caller, KEY))
    kept.save()
    assert secret in kept_in_clear()
    again = create(acme)
    assert (said(again)["secret"], again["Idempotency-Replayed"]) == (None, "true")


def test_status_headers_and_etag_come_again_too(operator: Api) -> None:
    body = {"slug": "globex", "name": "Globex"}
    first, second = (operator.post("/orgs", body, Idempotency_Key=KEY) for _ in range(2))
    for name in ("Content-Type", "Location", "ETag"):
        assert first.get(name) == second.get(name)
    assert first.status_code == second.status_code == 201
    assert Organisation.objects.count() == 1


def test_a_put_repeated_publishes_once_though_its_if_match_is_stale_by_then(acme: Api) -> None:
    answers = [
        acme.put("/orgs/acme/policy", {"policy": {"ttl_seconds": 60}}, seen=0, Idempotency_Key=KEY) for _ in range(2)
    ]
    assert [(one.status_code, one["ETag"]) for one in answers] == [(200, '"1"')] * 2
    assert Organisation.objects.get().policy_level.revision == 1


def test_another_body_under_the_same_key_is_refused(acme: Api) -> None:
    create(acme)
    answer = create(acme, name="ci two")
    assert answer.status_code == 409
    assert said(answer)["errors"][0]["field"] == "Idempotency-Key"
    assert made() == 1


def test_another_path_or_method_under_the_same_key_is_refused(acme: Api) -> None:
    assert acme.post("/orgs/acme/purge", {}, Idempotency_Key=KEY).status_code == 202
    assert acme.post("/orgs/acme/namespaces/default/purge", {}, Idempotency_Key=KEY).status_code == 409


def test_another_caller_may_use_the_same_key(acme: Api) -> None:
    other = Api(make_key(Organisation.objects.get()), Client())
    first, second = create(acme), create(other)
    assert said(first)["secret"] != said(second)["secret"]
    assert None not in (said(first)["secret"], said(second)["secret"])
    assert made() == 2


def test_without_a_key_every_request_is_done(acme: Api) -> None:
    for _ in range(2):
        acme.post("/orgs/acme/keys", BODY)
    assert (made(), IdempotentRequest.objects.count()) == (2, 0)


def test_after_a_day_the_key_is_new_and_not_before(acme: Api) -> None:
    first = create(acme)
    age(hours=23.9)
    assert said(create(acme)) == {**said(first), "secret": None}
    age(hours=24.1)
    assert create(acme, name="ci", scopes=["stats:read"]).status_code == 201
    assert (made(), IdempotentRequest.objects.count()) == (2, 1)


def test_housekeeping_forgets_answers_after_a_day_and_not_before(acme: Api) -> None:
    create(acme)
    housekeeping(now=timezone.now() + ANSWERS_KEPT - timedelta(minutes=1))
    assert IdempotentRequest.objects.count() == 1
    housekeeping(now=timezone.now() + ANSWERS_KEPT + timedelta(minutes=1))
    assert IdempotentRequest.objects.count() == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/orgs/acme/keys", {"name": "ci", "scopes": ["nonsense"]}, 422),
        ("POST", "/orgs/acme/namespaces", {"slug": "default"}, 409),
        ("PUT", "/orgs/acme/policy", {"policy": {"weight": 2}}, 403),
        ("POST", "/orgs/globex/purge", {}, 404),
    ],
)
def test_what_fails_keeps_nothing_and_may_be_sent_again(
    acme: Api, method: str, path: str, body: object, status: int
) -> None:
    for _ in range(2):
        answer = acme.ask(method, path, body, Idempotency_Key=KEY, If_Match='"0"')
        assert (answer.status_code, answer.get("Idempotency-Replayed")) == (status, None)
    assert not IdempotentRequest.objects.exists()
    assert create(acme).status_code == 201


def test_a_kept_answer_cannot_be_read_where_it_lies_nor_moved_to_another_key(acme: Api) -> None:
    key = said(create(acme))["id"]
    kept = IdempotentRequest.objects.get()
    assert kept.sealed_answer is not None
    assert key.encode() not in bytes(kept.sealed_answer)
    assert key in kept_in_clear()
    for caller, key in ((kept.caller, "another"), ("key:another", KEY)):
        with pytest.raises(Unreadable):
            unseal(kept.sealed_answer, place=answer_place(caller, key))


QUESTIONS = [
    ("/orgs/acme/policy/preview", {"policy": {"ttl_seconds": 60}}),
    ("/config/plan", {"document": {"version": 1, "organisations": {"acme": {"policy": {"ttl_seconds": 60}}}}}),
]


@pytest.mark.parametrize(("path", "body"), QUESTIONS)
def test_a_question_is_answered_anew_and_its_answer_not_kept(acme: Api, path: str, body: dict[str, Any]) -> None:
    first = acme.post(path, body, Idempotency_Key=KEY)
    kept = IdempotentRequest.objects.get()
    assert (first.status_code, kept.sealed_answer) == (200, None)
    assert acme.put("/orgs/acme/policy", {"policy": {"ttl_seconds": 60}}, seen=0).status_code == 200
    second = acme.post(path, body, Idempotency_Key=KEY)
    assert (second.status_code, second.get("Idempotency-Replayed")) == (200, None)
    assert second.content != first.content
    assert IdempotentRequest.objects.count() == 1


@pytest.mark.parametrize(("path", "body"), QUESTIONS)
def test_a_question_has_its_key_for_itself(acme: Api, path: str, body: dict[str, Any]) -> None:
    assert acme.post(path, body, Idempotency_Key=KEY).status_code == 200
    for answer in (acme.post(path, {**body, "x": 1}), create(acme)):
        assert answer.status_code in (409, 422)
    assert made() == 0


def test_a_question_that_fails_leaves_its_key_free(acme: Api) -> None:
    assert acme.post("/orgs/globex/policy/preview", {"policy": {}}, Idempotency_Key=KEY).status_code == 404
    assert create(acme).status_code == 201


def test_every_operation_that_changes_nothing_says_so() -> None:
    """A POST that only asks: its answer may be as large as what it is about, and would be kept for a day."""
    asking = {one.path.rpartition("/")[2] for one in OPERATIONS if one.method == "POST" and one.changes_nothing}
    assert asking == {"preview", "plan", "kv", "prompt"}
    questions = ("/preview", "/plan", "/calculator/kv", "/lint/prompt")
    assert all(one.changes_nothing for one in OPERATIONS if one.path.endswith(questions))


def test_an_answer_too_large_to_keep_is_given_once_and_its_deed_done_once(
    acme: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "KEPT_BYTES", 100)
    assert create(acme).status_code == 201
    again = create(acme)
    assert (again.status_code, said(again)["errors"][0]["field"]) == (409, "Idempotency-Key")
    assert "was carried out" in said(again)["detail"]
    assert (made(), IdempotentRequest.objects.get().sealed_answer) == (1, None)


@pytest.mark.django_db(transaction=True)
def test_of_twins_sent_at_once_one_is_done_and_all_are_answered_alike() -> None:
    acme = make_key(make_organisation())
    answers = at_once(*[lambda: create(Api(acme, Client()))] * 4)
    assert len({said(one)["id"] for one in answers}) == 1
    assert sum(said(one)["secret"] is not None for one in answers) == 1
    assert sorted(one.get("Idempotency-Replayed", "") for one in answers) == ["", "true", "true", "true"]
    assert (made(), IdempotentRequest.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_the_twin_of_one_that_fails_is_done_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = make_key(make_organisation())
    turns = iter([True])

    def seal_but_once(plain: bytes, *, place: str) -> bytes:
        if next(turns, False):
            time.sleep(0.1)  # the deed is done, and its twin waits
            raise RuntimeError("crashed")
        return seal(plain, place=place)

    monkeypatch.setattr("tenants.services.idempotency.seal", seal_but_once)
    answers = at_once(*[lambda: create(Api(acme, Client(raise_request_exception=False)))] * 2)
    assert sorted(one.status_code for one in answers) == [201, 500]
    assert made() == 1
