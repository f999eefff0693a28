"""Bad input that people and programs really send, and worse: refused with the field's name, and nothing has changed."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from django.http import HttpResponse
from django.test import Client

from controlplane.api.body_limit import MEBIBYTE
from tenants.models import AuditHead, Organisation
from tests.servers.asgi_clients import ask
from tests.web.api import Api, make_organisation, said

PROBLEM = "application/problem+json"
HERE = "/orgs/acme/namespaces/default"
POLICY = f"{HERE}/policy"

Refusal = tuple[int, str]  # status, and the field that is to blame


@pytest.fixture
def api(operator: Api) -> Api:
    make_organisation("acme")
    return operator


def refusal(response: HttpResponse) -> Refusal:
    assert response["Content-Type"] == PROBLEM, (response.status_code, response.content)
    found = json.loads(response.content)
    assert found["status"] == response.status_code
    assert all(one["message"] for one in found["errors"])
    return response.status_code, " ".join(dict.fromkeys(one["field"] for one in found["errors"]))


def refusals(api: Api, method: str, path: str, bodies: Mapping[str, Any], **headers: str) -> dict[str, Refusal]:
    """What each body is refused with. Nothing may have changed after any of them."""
    before = bytes(AuditHead.objects.get().hash)
    found = {}
    for name, body in bodies.items():
        found[name] = refusal(api.ask(method, path, body, **headers))
        assert bytes(AuditHead.objects.get().hash) == before, name
    return found


NO_JSON: dict[str, bytes] = {
    "spaces": b" \n",
    "cut off": b'{"slug": "globex"',
    "a comma too many": b'{"slug": "globex",}',
    "single quotes": b"{'slug': 'globex'}",
    "two documents": b'{"slug": "globex"} {}',
    "a form": b"slug=globex&name=Globex",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "not UTF-8": b'{"slug": "\xff"}',
    "UTF-16": '{"slug": "globex"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"slug": "globex"}',
    "a raw line break in a string": b'{"slug": "glo\nbex"}',
    "too deep": b'{"slug": ' + b"[" * 40 + b"]" * 40 + b"}",
    "far too deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
}


def test_what_is_no_json_object_is_refused(api: Api) -> None:
    assert refusals(api, "POST", "/orgs", {"nothing": b""}) == {"nothing": (422, "body")}
    assert set(refusals(api, "POST", "/orgs", NO_JSON).values()) == {(400, "body")}


STRANGE_JSON: dict[str, tuple[bytes, Refusal]] = {
    "a field twice": (b'{"slug": "globex", "name": "a", "name": "b"}', (400, "name")),
    "a nested field twice": (b'{"slug": "g", "name": {"x": [{"a": 1, "a": 2}]}}', (400, "name.x.0.a")),
    "NaN": (b'{"slug": "globex", "name": NaN}', (400, "name")),
    "Infinity": (b'{"slug": "globex", "name": -Infinity}', (400, "name")),
    "a number beyond any float": (b'{"slug": "globex", "name": 1e999}', (400, "name")),
    "an integer beyond 64 bits": (b'{"slug": "globex", "name": 9223372036854775808}', (400, "name")),
    "an integer of 100,000 digits": (b'{"slug": "globex", "name": ' + b"9" * 100_000 + b"}", (400, "name")),
    "NUL": (b'{"slug": "globex", "name": "a\\u0000b"}', (400, "name")),
    "half a surrogate pair": (b'{"slug": "globex", "name": "\\ud83d"}', (400, "name")),
    "a name with NUL": (b'{"slug": "globex", "na\\u0000me": "x"}', (400, "na\N{REPLACEMENT CHARACTER}me")),
}


def test_json_that_readers_disagree_about_is_refused(api: Api) -> None:
    found = refusals(api, "POST", "/orgs", {name: body for name, (body, _) in STRANGE_JSON.items()})
    assert found == {name: promised for name, (_, promised) in STRANGE_JSON.items()}


WRONG_KINDS = {
    "none": "",
    "text": "text/plain",
    "a form": "application/x-www-form-urlencoded",
    "a multipart form": "multipart/form-data; boundary=x",
    "XML": "application/xml",
    "JSON by another name": "text/json",
    "another charset": "application/json; charset=utf-16",
    "no kind at all": "json",
    "a lie in two parts": "text/plain; application/json",
}


def test_a_body_of_another_kind_is_refused(api: Api) -> None:
    body = json.dumps({"slug": "globex", "name": "Globex"}).encode()
    found = {name: refusal(api.ask("POST", "/orgs", body, Content_Type=kind)) for name, kind in WRONG_KINDS.items()}
    assert set(found.values()) == {(415, "Content-Type")}
    assert not Organisation.objects.filter(slug="globex").exists()


WRONG_SLUGS = {
    "empty": "",
    "a space": " ",
    "capitals": "Globex",
    "a hyphen first": "-globex",
    "a hyphen last": "globex-",
    "too long": "g" * 64,
    "a line break after": "globex\n",
    "a line break before": "\nglobex",
    "a space after": "globex ",
    "a dot": "glo.bex",
    "a slash": "glo/bex",
    "a way up": "../globex",
    "an escape": "glo%2Fbex",
    "full width": "ｇｌｏｂｅｘ",
    "a Cyrillic e": "glob\u0435x",
    "a combining accent": "globe\u0301x",
    "a ligature": "ﬁle",
    "a zero-width space": "glo\u200bbex",
    "a right-to-left mark": "glo\u200fbex",
    "a soft hyphen": "glo\u00adbex",
    "Arabic digits": "globex\u0661",
    "an emoji": "globex🙂",
    "a number": 5,
    "true": True,
    "null": None,
    "a list": ["globex"],
    "an object": {"slug": "globex"},
}


def test_what_is_no_slug_is_refused_wherever_one_is_given(api: Api) -> None:
    for path, more in (
        ("/orgs", {"name": "Globex"}),
        ("/orgs/acme/namespaces", {}),
        ("/agent-groups", {"name": "Group"}),
    ):
        found = refusals(api, "POST", path, {name: {"slug": slug, **more} for name, slug in WRONG_SLUGS.items()})
        assert set(found.values()) == {(422, "slug")}, path


def test_what_is_no_slug_names_nothing_in_a_path(api: Api) -> None:
    wrong = [slug for slug in WRONG_SLUGS.values() if isinstance(slug, str)]
    names = [*wrong, "%00", "..", "a" * 5_000, "\udcff", "*", "acme;x=1", "acme'--"]
    for name in names:
        for before, after in (("/orgs/", ""), ("/orgs/acme/namespaces/", "/policy"), ("/agent-groups/", "")):
            method = "DELETE" if before == "/agent-groups/" else "GET"
            response = api.ask(method, before + quoted(name) + after)
            assert refusal(response)[0] in (404, 405), (before, name)


def quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


WRONG_NAMES = {
    "empty": "",
    "only spaces": "   ",
    "too long": "x" * 101,
    "a control character": "Glo\u0007bex",
    "a line break": "Glo\nbex",
    "reversed text": "Glo\u202ebex",
    "a zero-width space": "\u200b",
    "a byte order mark": "\ufeffGlobex",
    "a private character": "\ue000",
    "no character": "\uffff",
    "a number": 7,
    "null": None,
    "a list": ["Globex"],
}


def test_names_that_cannot_be_read_are_refused(api: Api) -> None:
    bodies = {name: {"slug": "globex", "name": wrong} for name, wrong in WRONG_NAMES.items()}
    assert set(refusals(api, "POST", "/orgs", bodies).values()) == {(422, "name")}


WRONG_POLICIES: dict[str, tuple[Any, str]] = {
    "no time at all": ({"ttl_seconds": 0}, "policy.ttl_seconds"),
    "a negative time": ({"ttl_seconds": -1}, "policy.ttl_seconds"),
    "more than a week": ({"ttl_seconds": 604_801}, "policy.ttl_seconds"),
    "a huge time": ({"ttl_seconds": 2**62}, "policy.ttl_seconds"),
    "half a second": ({"ttl_seconds": 300.5}, "policy.ttl_seconds"),
    "a float": ({"ttl_seconds": 300.0}, "policy.ttl_seconds"),
    "text": ({"ttl_seconds": "300"}, "policy.ttl_seconds"),
    "true": ({"ttl_seconds": True}, "policy.ttl_seconds"),
    "null where it is no value": ({"ttl_seconds": None}, "policy.ttl_seconds"),
    "a list of one": ({"ttl_seconds": [300]}, "policy.ttl_seconds"),
    "1 for true": ({"prefix_caching": 1}, "policy.prefix_caching"),
    "yes": ({"prefix_caching": "yes"}, "policy.prefix_caching"),
    "another mode": ({"ttl_mode": "Sliding"}, "policy.ttl_mode"),
    "another format": ({"kv_dtype": "fp4"}, "policy.kv_dtype"),
    "a format with a space": ({"kv_dtype": "fp8 "}, "policy.kv_dtype"),
    "a format twice": ({"request_kv_dtypes": ["int4", "int4"]}, "policy.request_kv_dtypes"),
    "formats as text": ({"request_kv_dtypes": "int4"}, "policy.request_kv_dtypes"),
    "a share above all": ({"limit_share": 1.0001}, "policy.limit_share"),
    "a negative share": ({"reserved_share": -0.0001}, "policy.reserved_share"),
    "a share as text": ({"pin_share": "10%"}, "policy.pin_share"),
    "no weight": ({"weight": 0}, "policy.weight"),
    "a huge weight": ({"weight": 1e300}, "policy.weight"),
    "a tier that is none": ({"offload": "tape"}, "policy.offload"),
    "a field nobody knows": ({"ttl": 300}, "policy.ttl"),
    "a field by another spelling": ({"TTL_SECONDS": 300}, "policy.TTL_SECONDS"),
    "no object": ([], "policy"),
    "no policy": (None, "policy"),
    "a model that is none": ({"models": {"../etc": {}}}, "policy.models.../etc"),
    "a model without a name": ({"models": {"": {}}}, "policy.models."),
    "a model within a model": ({"models": {"m": {"models": {}}}}, "policy.models.m.models"),
    "a model's own mistake": ({"models": {"m": {"ttl_seconds": 0}}}, "policy.models.m.ttl_seconds"),
    "too many models": ({"models": {f"m{n}": {} for n in range(51)}}, "policy.models"),
    "a time beyond its age": ({"ttl_seconds": 600, "max_age_seconds": 60}, "policy.ttl_seconds"),
    "more reserved than allowed": ({"reserved_share": 0.5, "limit_share": 0.4}, "policy.reserved_share"),
}


def test_a_policy_that_says_what_it_may_not_is_refused(api: Api) -> None:
    bodies = {name: {"policy": policy} for name, (policy, _) in WRONG_POLICIES.items()}
    promised = {name: (422, field) for name, (_, field) in WRONG_POLICIES.items()}
    assert refusals(api, "PUT", POLICY, bodies, If_Match="*") == promised


def test_every_field_that_is_wrong_is_named_at_once(api: Api) -> None:
    policy = {"ttl_seconds": 0, "kv_dtype": "x", "reserved_share": 2, "unknown": 1, "models": {"m": {"weight": "x"}}}
    response = api.put(POLICY, {"policy": policy, "note": 5, "rollout": {"strategy": "some"}, "more": 1}, If_Match="*")
    named = {f"policy.{one}" for one in ("ttl_seconds", "kv_dtype", "reserved_share", "unknown", "models.m.weight")}
    status, fields = refusal(response)
    assert status == 422
    assert set(fields.split()) == named | {"note", "rollout.strategy", "more"}


WRONG: dict[str, tuple[str, str, Any, Refusal]] = {
    "a revision below zero": ("POST", f"{POLICY}/rollback", {"revision": -1}, (422, "revision")),
    "a revision that never was": ("POST", f"{POLICY}/rollback", {"revision": 2**31 - 1}, (422, "revision")),
    "a revision beyond the database": ("POST", f"{POLICY}/rollback", {"revision": 2**31}, (422, "revision")),
    "a note too long": ("PUT", POLICY, {"policy": {}, "note": "x" * 501}, (422, "note")),
    "a note nobody sees": ("PUT", POLICY, {"policy": {}, "note": "\u200b"}, (422, "note")),
    "no scope": ("POST", "/orgs/acme/keys", {"name": "k", "scopes": []}, (422, "scopes")),
    "a scope that is none": ("POST", "/orgs/acme/keys", {"name": "k", "scopes": ["root"]}, (422, "scopes.0")),
    "scopes as text": ("POST", "/orgs/acme/keys", {"name": "k", "scopes": "infer"}, (422, "scopes")),
    "no such namespace": (
        "POST", "/orgs/acme/keys", {"name": "k", "scopes": ["infer"], "namespaces": ["nope"]}, (422, "namespaces"),
    ),
    "bound to nothing": (
        "POST", "/orgs/acme/keys", {"name": "k", "scopes": ["infer"], "namespaces": []}, (422, "namespaces"),
    ),
    "an admin who is bound": (
        "POST", "/orgs/acme/keys", {"name": "k", "scopes": ["admin"], "namespaces": ["default"]}, (422, "scopes"),
    ),
    "a role that is none": ("POST", "/orgs/acme/members", {"email": "a@b.example", "role": "owner"}, (422, "role")),
    "a token that infers": ("POST", "/operator-tokens", {"name": "t", "scopes": ["infer"]}, (422, "scopes.0")),
    "a state by hand": ("PATCH", "/orgs/acme", {"state": "deleted"}, (422, "state")),
    "a slug cannot change": ("PATCH", "/orgs/acme", {"slug": "globex"}, (422, "slug")),
    "no such group": ("PATCH", HERE, {"group": "nowhere"}, (422, "group")),
    "a limit below zero": ("PUT", "/orgs/acme/limits", {"limits": {"max_keys": -1}}, (422, "limits.max_keys")),
    "a limit of no requests": (
        "PUT", "/orgs/acme/limits", {"limits": {"requests_per_minute": 0}}, (422, "limits.requests_per_minute"),
    ),
    "a limit nobody knows": ("PUT", "/orgs/acme/limits", {"limits": {"max_cats": 1}}, (422, "limits.max_cats")),
    "bounds the wrong way round": (
        "PUT", "/orgs/acme/bounds", {"bounds": {"ttl_seconds": {"min": 9, "max": 3}}}, (422, "bounds.ttl_seconds"),
    ),
    "bounds of nothing": ("PUT", "/orgs/acme/bounds", {"bounds": {"cats": {}}}, (422, "bounds.cats")),
    "bounds that are no number": (
        "PUT", "/orgs/acme/bounds", {"bounds": {"weight": {"max": "much"}}}, (422, "bounds.weight.max"),
    ),
    "a purge of something else": ("POST", f"{HERE}/purge", {"everything": True}, (422, "everything")),
    "a purge that is not sure": ("POST", f"{HERE}/purge", {"include_pins": "no"}, (422, "include_pins")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_an_operation_cannot_use_is_refused_by_its_name(api: Api, name: str) -> None:
    method, path, body, promised = WRONG[name]
    assert refusals(api, method, path, {name: body}, If_Match="*") == {name: promised}


PIN = {"name": "p", "model": "m"}
WRONG_PINS: dict[str, tuple[Any, str]] = {
    "nothing to pin": ({}, "body"),
    "two things to pin": ({"prompt": "a", "token_ids": [1]}, "body"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "no message": ({"messages": []}, "messages"),
    "a message without a role": ({"messages": [{"content": "x"}]}, "messages.0.role"),
    "a message that is text": ({"messages": ["x"]}, "messages.0"),
    "a token below zero": ({"token_ids": [-1]}, "token_ids.0"),
    "a token beyond any vocabulary": ({"token_ids": [2**32]}, "token_ids.0"),
    "a token that is text": ({"token_ids": ["1"]}, "token_ids.0"),
    "too many tokens": ({"token_ids": [1] * 131_073}, "token_ids"),
    "a model that is none": ({"prompt": "x", "model": "a b"}, "model"),
}


def test_a_pin_that_cannot_be_kept_is_refused(api: Api) -> None:
    bodies = {name: {**PIN, **wrong} for name, (wrong, _) in WRONG_PINS.items()}
    promised = {name: (422, field) for name, (_, field) in WRONG_PINS.items()}
    assert refusals(api, "POST", f"{HERE}/pins", bodies) == promised


WRONG_TIMES = {
    "a number": 1_900_000_000,
    "a number as text": "1900000000",
    "a day": "2036-01-01",
    "no zone": "2036-01-01T00:00:00",
    "in the past": "2020-01-01T00:00:00Z",
    "no such day": "2036-02-30T00:00:00Z",
    "no such hour": "2036-01-01T25:00:00Z",
    "beyond the calendar": "10000-01-01T00:00:00Z",
    "a word": "tomorrow",
    "empty": "",
    "an object": {},
}


def test_a_time_that_is_none_or_is_over_is_refused(api: Api) -> None:
    for path, body in (
        ("/orgs/acme/keys", {"name": "k", "scopes": ["infer"]}),
        ("/operator-tokens", {"name": "t", "scopes": ["policy:read"]}),
        (f"{HERE}/pins", {**PIN, "prompt": "x"}),
    ):
        found = refusals(api, "POST", path, {name: {**body, "expires_at": at} for name, at in WRONG_TIMES.items()})
        assert set(found.values()) == {(422, "expires_at")}, (path, found)


WRONG_ADDRESSES = (
    "",
    "kim",
    "kim@",
    "@acme.example",
    "kim@acme",
    "kim acme@acme.example",
    "kim@acme.example\nx",
    "kim@@acme.example",
    "kim@acme..example",
    "k" * 250 + "@acme.example",
    "kim@\u0430cme.example\u200b",
    "Kim <kim@acme.example>",
    "kim@acme.example,eve@acme.example",
    5,
    None,
    ["kim@acme.example"],
)


def test_what_is_no_address_is_refused(api: Api) -> None:
    bodies = {repr(address)[:40]: {"email": address, "role": "viewer"} for address in WRONG_ADDRESSES}
    found = refusals(api, "POST", "/orgs/acme/members", bodies)
    assert set(found.values()) == {(422, "email")}, found


IF_MATCH: dict[str, tuple[str | None, Refusal]] = {
    "missing": (None, (428, "If-Match")),
    "without quotes": ("0", (400, "If-Match")),
    "empty": ("", (400, "If-Match")),
    "one quote": ('"0', (400, "If-Match")),
    "single quotes": ("'0'", (400, "If-Match")),
    "another revision": ('"1"', (412, "If-Match")),
    "a weak tag": ('W/"0"', (412, "If-Match")),
    "a tag of somebody else": ('"abc"', (412, "If-Match")),
    "a negative revision": ('"-1"', (412, "If-Match")),
    "a padded revision": ('"00"', (412, "If-Match")),
    "a huge revision": (f'"{"9" * 100_000}"', (412, "If-Match")),
    "Arabic digits": ('"\u0660"', (400, "If-Match")),
    "a star among tags": ('"1", *', (400, "If-Match")),
}


def test_a_precondition_that_does_not_hold_changes_nothing(api: Api) -> None:
    before = bytes(AuditHead.objects.get().hash)
    for name, (tag, promised) in IF_MATCH.items():
        headers = {} if tag is None else {"If_Match": tag}
        assert refusal(api.ask("PUT", POLICY, {"policy": {"ttl_seconds": 60}}, **headers)) == promised, name
    assert bytes(AuditHead.objects.get().hash) == before


FOREIGN_TAGS = {
    'W/"0"': 'W/"0" is a weak ETag, which never matches: send the revision in double quotes, as in "7"',
    '"abc"': '"abc" is not the ETag of a revision: send the revision in double quotes, as in "7"',
}


@pytest.mark.parametrize("tag", FOREIGN_TAGS)
def test_foreign_tags_are_named(api: Api, tag: str) -> None:
    answer = api.ask("PUT", POLICY, {"policy": {}}, If_Match=tag)
    assert said(answer)["errors"] == [{"field": "If-Match", "message": FOREIGN_TAGS[tag]}]


def test_current_tag_matches_beside_foreign_ones(api: Api) -> None:
    assert api.ask("PUT", POLICY, {"policy": {"ttl_seconds": 60}}, If_Match='W/"0", "0"').status_code == 200


@pytest.mark.parametrize("path", ["/orgs/acme/purge", f"{HERE}/purge"])
def test_purge_needs_no_body(api: Api, path: str) -> None:
    assert api.ask("POST", path).status_code == 202
    assert api.ask("POST", path, {}).status_code == 202
    assert refusal(api.ask("POST", path, {"include_pin": True})) == (422, "include_pin")


KEYS = {
    "empty": "",
    "spaces": "  ",
    "a space within": "a b",
    "too long": "k" * 256,
    "no ASCII": "schlüssel",
    "quotes alone": '""',
}


def test_an_idempotency_key_that_is_none_is_refused(api: Api) -> None:
    for name, key in KEYS.items():
        answer = api.post("/orgs", {"slug": "globex", "name": "Globex"}, Idempotency_Key=key)
        assert refusal(answer) == (400, "Idempotency-Key"), name
    assert not Organisation.objects.filter(slug="globex").exists()


def test_an_idempotency_key_stands_for_one_request(api: Api) -> None:
    assert api.post("/orgs", {"slug": "globex", "name": "Globex"}, Idempotency_Key="k").status_code == 201
    again = api.post("/orgs", {"slug": "initech", "name": "Initech"}, Idempotency_Key="k")
    assert refusal(again) == (409, "Idempotency-Key")
    assert not Organisation.objects.filter(slug="initech").exists()


TOKENS = (
    "",
    "Bearer",
    "Bearer ",
    "Basic b3A6cGFzcw==",
    "lmk_x",
    "Bearer lmk_",
    "Bearer lmo_" + "x" * 49,
    "Bearer a b c",
    "Bearer lmk_schlüssel",
    "Bearer " + "x" * 20_000,
    "bearer: x",
    "Bearer null",
    "Digest username=x",
)


@pytest.mark.django_db
def test_what_is_no_token_opens_nothing() -> None:
    for header in (None, *TOKENS):
        response = Api(None, Client()).get("/whoami", **({} if header is None else {"Authorization": header}))
        assert refusal(response)[0] == 401, header
        assert response["WWW-Authenticate"].startswith("Bearer"), header


QUERIES: dict[str, tuple[str, Refusal]] = {
    "no page": ("limit=0", (422, "limit")),
    "a negative page": ("limit=-1", (422, "limit")),
    "too large a page": ("limit=201", (422, "limit")),
    "a huge page": (f"limit={'9' * 5000}", (422, "limit")),
    "half a page": ("limit=1.5", (422, "limit")),
    "a page in words": ("limit=ten", (422, "limit")),
    "an empty page": ("limit=", (422, "limit")),
    "two pages": ("limit=1&limit=2", (400, "limit")),
    "a parameter nobody knows": ("page=2", (400, "page")),
    "a parameter without a name": ("=2", (400, "query")),
    "a capital": ("Limit=2", (400, "Limit")),
    "a broken escape": ("limit=%2", (400, "limit")),
    "no UTF-8": ("cursor=%ff", (400, "cursor")),
    "NUL": ("cursor=%00", (400, "cursor")),
    "an empty cursor": ("cursor=", (400, "cursor")),
    "a cursor made up": ("cursor=eyJzbHVnIjoiYSJ9", (400, "cursor")),
    "a cursor of no base64": ("cursor=!!!", (400, "cursor")),
    "a cursor too long": (f"cursor={'A' * 1025}", (422, "cursor")),
    "a cursor in another alphabet": ("cursor=%D0%B0%D0%B0", (400, "cursor")),
}


def test_a_query_that_asks_for_nothing_is_refused(api: Api) -> None:
    found = {name: refusal(api.get(f"/orgs?{query}")) for name, (query, _) in QUERIES.items()}
    assert found == {name: promised for name, (_, promised) in QUERIES.items()}


def test_a_cursor_is_good_for_its_own_list_alone(api: Api) -> None:
    for slug in ("globex", "initech"):
        make_organisation(slug, "chat")
    cursor, spaces = next_cursor(api, "/orgs"), next_cursor(api, "/orgs/globex/namespaces")
    assert api.get(f"/orgs?cursor={cursor}").status_code == 200
    for path, wrong in (
        ("/orgs", cursor[:-1]),
        ("/orgs", cursor[:-1] + ("A" if cursor[-1] != "A" else "B")),
        ("/orgs", cursor.swapcase()),
        ("/orgs", spaces),
        ("/orgs/initech/namespaces", spaces),
        ("/audit", cursor),
    ):
        assert refusal(api.get(f"{path}?cursor={wrong}")) == (400, "cursor"), (path, wrong)


def next_cursor(api: Api, path: str) -> str:
    return str(json.loads(api.get(f"{path}?limit=1").content)["next_cursor"])


def test_an_id_that_is_none_names_nothing(api: Api) -> None:
    for wrong in (
        "1",
        "x",
        "0" * 36,
        "6e8bc430-9c3a-4d0b-b1e5-5a0b6f0f4c1g",
        "{6e8bc430-9c3a-4d0b-b1e5-5a0b6f0f4c11}",
        "-1",
    ):
        for path in ("/orgs/acme/members/", "/operations/", "/policy/revisions/"):
            assert refusal(api.get(path + quoted(wrong)))[0] == 404, (path, wrong)
    for wrong in ("0", "1e3", "1.0", "+1", "\u0661", "9" * 30, str(2**31)):
        assert refusal(api.get("/policy/revisions/" + quoted(wrong)))[0] == 404, wrong


@pytest.mark.django_db(transaction=True)
async def test_what_is_refused_in_front_of_django_is_a_problem_of_the_same_kind() -> None:
    json_kind = {"content-type": "application/json"}
    asked: dict[str, tuple[dict[str, Any], Refusal]] = {
        "a body that announces too much": (
            {"headers": {**json_kind, "content-length": str(MEBIBYTE + 1)}},
            (413, "body"),
        ),
        "a body that grows too large": ({"chunks": [b" " * MEBIBYTE, b"x"], "headers": json_kind}, (413, "body")),
        "no length": ({"headers": {**json_kind, "content-length": "many"}}, (400, "Content-Length")),
        "a charset that is none": (
            {"headers": {"content-type": "application/json; charset=ebcdic"}},
            (415, "Content-Type"),
        ),
        "a path with NUL": ({"path": "/api/v1/orgs\0"}, (400, "path")),
        "a query that is no UTF-8": ({"query": b"limit=\xff"}, (400, "query")),
    }
    for name, (request, promised) in asked.items():
        status, headers, body = await ask(**{"path": "/api/v1/orgs", "method": "POST", **request})
        assert headers["content-type"] == PROBLEM, name
        found = json.loads(body)
        assert (status, found["errors"][0]["field"]) == promised, name
        assert found["type"].startswith("/api/v1/docs#problem-")


def test_a_host_that_is_not_ours_is_named(api: Api) -> None:
    assert refusal(api.get("/orgs", Host="luminet.example.org")) == (400, "Host")
    assert refusal(api.get("/no/such/path", Host="a b")) == (400, "Host")


def test_what_was_refused_stays_possible(api: Api) -> None:
    """None of the refusals above came from something being wrong with the request that is right."""
    assert api.post("/orgs", {"slug": "globex", "name": "Globex"}).status_code == 201
    assert api.put(POLICY, {"policy": {"ttl_seconds": 60}}, seen=0).status_code == 200
    assert api.post(f"{HERE}/pins", {**PIN, "prompt": "x", "expires_at": "2036-01-01T00:00:00Z"}).status_code == 201


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59-23:59", "9998-01-01T00:00:00Z"])
@pytest.mark.parametrize("path", ["/orgs/acme/keys", "/orgs/acme/namespaces/default/pins"])
def test_an_end_beyond_the_calendar_is_refused_and_every_list_can_still_be_read(
    operator: Api, acme: Api, path: str, moment: str
) -> None:
    body = {"name": "x", "scopes": ["infer"]} if path.endswith("keys") else {"name": "x", "model": "m", "prompt": "p"}
    response = operator.post(path, {**body, "expires_at": moment})
    assert response.status_code == 422
    assert [one["field"] for one in said(response)["errors"]] == ["expires_at"]
    assert operator.get(path).status_code == 200


def test_all_that_is_wrong_with_a_key_is_said_at_once(operator: Api, acme: Api) -> None:
    body = {"name": "\u200b", "scopes": ["admin"], "namespaces": ["default"], "expires_at": "2020-01-01T00:00:00Z"}
    errors = said(operator.post("/orgs/acme/keys", body))["errors"]
    assert {one["field"] for one in errors} == {"name", "scopes", "expires_at"}


def test_the_name_of_a_model_that_is_none_is_named_in_words(operator: Api, acme: Api) -> None:
    response = operator.put("/orgs/acme/policy", {"policy": {"models": {"bad name": {}}}}, seen=0)
    (error,) = said(response)["errors"]
    assert error["field"] == "policy.models.bad name"
    assert "name of a model" in error["message"]


def test_what_can_be_read_can_be_asked_about_with_head(operator: Api, acme: Api) -> None:
    response = operator.ask("HEAD", "/orgs/acme")
    assert (response.status_code, response["ETag"]) == (200, '"1"')


def test_no_organisation_is_called_like_the_fleet(operator: Api) -> None:
    response = operator.post("/orgs", {"slug": "fleet", "name": "Fleet"})
    assert response.status_code == 422
    assert said(response)["errors"][0]["field"] == "slug"
