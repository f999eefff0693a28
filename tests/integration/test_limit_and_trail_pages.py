"""Limits, bounds and the trail of an organisation in the browser: read by its people, set by operators."""

from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants.actor import SYSTEM
from tenants.bounds import BUILT_IN_BOUNDS, Bounds, KvDtypes, TtlModes, bounds_of
from tenants.levels import Place
from tenants.limits import Limits
from tenants.models import Organisation
from tenants.services.keys import key_create
from tenants.services.organisations import bounds_put, limits_put
from tests.database.factories import publish
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
LIMITS, TRAIL = "/orgs/acme/limits", "/orgs/acme/audit"
BUILT_IN = {
    "prefix_caching__may": "on",
    "ttl_seconds__may": "on",
    "ttl_seconds__min": "1 min",
    "ttl_seconds__max": "2 h",
    "kv_dtype__may": "on",
    "kv_dtype__allowed": ["fp8", "int4"],
    "reserved_share__may": "on",
    "reserved_share__max": "12.5 %",
    "weight__may": "on",
}


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


def get(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return words(answer)


def put(client: Client, what: str, told: dict[str, Any], revision: int | str = 0) -> HttpResponse:
    named = {f"{what}-{name}": value for name, value in {**told, "revision": revision}.items()}
    return client.post(LIMITS, {"do": what, **named})  # type: ignore[return-value]


@pytest.mark.parametrize("role", ["viewer", "editor", "admin"])
def test_its_people_read_limits_and_bounds_and_set_none(customer_client: Client, acme: Organisation, role: str) -> None:
    join(acme, role)
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(requests_per_minute=600), expected=None)
    page = get(customer_client, LIMITS)
    assert "Acme may send 600 requests a minute; its members may change 6 of 11 policy fields" in page
    assert "Namespaces that it may have; it has 2 5,000" in page
    assert "TTL 1 s to 7 d" in page
    assert "Weight operators only" in page
    assert "Set limits" not in page
    for what in ("limits", "bounds"):
        assert put(customer_client, what, {}, 1).status_code == 403
    acme.refresh_from_db()
    assert (acme.limits_revision, acme.bounds_revision) == (1, 0)


def test_an_operator_sets_limits_and_what_is_left_empty_has_its_default(
    operator_client: Client, acme: Organisation
) -> None:
    answer = put(operator_client, "limits", {"requests_per_minute": "1,200", "max_keys": "5"})
    assert (answer.status_code, answer["Location"]) == (302, LIMITS)
    acme.refresh_from_db()
    assert (acme.limits, acme.limits_revision) == ({"requests_per_minute": 1200, "max_keys": 5}, 1)
    page = operator_client.get(LIMITS).content.decode()
    assert 'name="limits-requests_per_minute" value="1200"' in page
    assert 'name="limits-revision" value="1"' in page


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("many", "“many” is no whole number."),
        ("-5", "“-5” is no whole number."),
        ("1.5", "“1.5” is no whole number."),
        ("٣", "“٣” is no whole number."),
        ("0", "0: Input should be greater than or equal to 1."),
        ("9" * 30, "should be less than or equal to 1000000000."),
        ("9" * 200, "at most 40 characters"),
        (SCRIPT, "is no whole number."),
    ],
)
def test_what_is_no_limit_is_told_with_its_value_and_stays_typed(
    operator_client: Client, acme: Organisation, typed: str, said: str
) -> None:
    answer = put(operator_client, "limits", {"requests_per_minute": typed, "max_keys": "77"})
    assert answer.status_code == 422
    assert said in words(answer)
    page = answer.content.decode()
    assert 'name="limits-max_keys" value="77"' in page
    assert SCRIPT not in page
    acme.refresh_from_db()
    assert acme.limits_revision == 0


def test_a_second_tab_learns_what_the_limits_are_now_and_keeps_its_text(
    operator_client: Client, acme: Organisation
) -> None:
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(requests_per_minute=600), expected=None)
    answer = put(operator_client, "limits", {"requests_per_minute": "50"}, revision=0)
    assert answer.status_code == 422
    told = words(answer)
    assert "Somebody changed these meanwhile: it is revision 1 now" in told
    assert "Now in force: Requests a minute 600" in told
    page = answer.content.decode()
    assert 'name="limits-requests_per_minute" value="50"' in page
    assert 'name="limits-revision" value="1"' in page
    assert put(operator_client, "limits", {"requests_per_minute": "50"}, revision=1).status_code == 302


def test_an_operator_sets_bounds_in_units_that_people_use(operator_client: Client, acme: Organisation) -> None:
    assert put(operator_client, "bounds", BUILT_IN).status_code == 302
    acme.refresh_from_db()
    assert acme.bounds == {
        "prefix_caching": {},
        "ttl_seconds": {"min": 60, "max": 7200},
        "kv_dtype": {"allowed": ["fp8", "int4"]},
        "reserved_share": {"max": 0.125},
        "weight": {},
    }
    page = operator_client.get(LIMITS).content.decode()
    for value in ("1 min", "2 h", "12.5 %"):
        assert f'value="{value}"' in page


NOTHING_ALLOWED = Bounds(
    kv_dtype=KvDtypes(allowed=[]), request_kv_dtypes=KvDtypes(allowed=[]), ttl_mode=TtlModes(allowed=["sliding"])
)


@pytest.mark.parametrize("set_before", [BUILT_IN_BOUNDS, NOTHING_ALLOWED, Bounds()], ids=["default", "empty", "none"])
def test_what_the_form_shows_is_what_it_would_set(
    operator_client: Client, acme: Organisation, set_before: Bounds
) -> None:
    bounds_put(actor=SYSTEM, organisation=acme, bounds=set_before, expected=None)
    acme.refresh_from_db()
    before = bounds_of(acme.bounds, acme.bounds_revision)
    assert before == set_before
    form = operator_client.get(LIMITS).context["bounds_form"]
    said = {name: value for name, value in form.initial.items() if value not in (False, None) and name != "revision"}
    assert put(operator_client, "bounds", said, revision=1).status_code == 302
    acme.refresh_from_db()
    assert bounds_of(acme.bounds, acme.bounds_revision) == before


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("ttl_seconds__max", "soon", "“soon” is no length of time: write 300, 5 min or 24 h."),
        ("ttl_seconds__max", "30 s", "TTL: min 60 is above max 30"),
        ("ttl_seconds__max", "0", "greater than or equal to 1"),
        ("reserved_share__max", "120 %", "Reserved share: Input should be less than or equal to 1"),
        ("reserved_share__max", SCRIPT, "is no percentage"),
        ("weight__min", "heavy", "“heavy” is no number: write 1 or 2.5."),
        ("kv_dtype__allowed", "fp7", "fp7 is not one of the available choices."),
    ],
)
def test_what_is_no_bound_is_told_beside_its_field(
    operator_client: Client, acme: Organisation, field: str, typed: str, said: str
) -> None:
    answer = put(operator_client, "bounds", {**BUILT_IN, field: typed})
    assert answer.status_code == 422
    assert said in words(answer)
    assert SCRIPT not in answer.content.decode()
    acme.refresh_from_db()
    assert acme.bounds_revision == 0


def test_formats_that_are_ticked_are_the_operators_alone_until_members_may_change_them(
    operator_client: Client, acme: Organisation
) -> None:
    assert put(operator_client, "bounds", {"kv_dtype__allowed": ["fp8"]}).status_code == 302
    acme.refresh_from_db()
    assert acme.bounds == {}


def test_bounds_that_somebody_else_set_meanwhile_are_not_overwritten_unseen(
    operator_client: Client, acme: Organisation
) -> None:
    assert put(operator_client, "bounds", BUILT_IN).status_code == 302
    answer = put(operator_client, "bounds", {"weight__may": "on"}, revision=0)
    assert answer.status_code == 422
    assert "TTL 1 min to 2 h" in words(answer)
    acme.refresh_from_db()
    assert acme.bounds_revision == 1


def test_the_trail_says_who_did_what_and_what_it_was_before(operator_client: Client, acme: Organisation) -> None:
    place = Place(acme, acme.namespaces.get(slug="chat"))
    publish(place, ttl_seconds=300)
    publish(place, ttl_seconds=60)
    page = get(operator_client, TRAIL)
    assert page.index("TTL was 5 min → became 1 min") < page.index("TTL became 5 min")
    assert "Policy published acme/chat policy.publish" in page
    assert "Luminet Luminet itself" in page


def test_its_people_do_not_learn_which_operator_it_was_nor_where_the_trail_of_others_lies(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    page = get(customer_client, TRAIL)
    assert "an operator operator" in page
    assert "Luminet itself" not in page
    assert "record " not in page.lower().replace("records", "").replace("each record", "")


def test_the_trail_of_others_is_not_in_it_and_hostile_words_are_text(
    operator_client: Client, acme: Organisation
) -> None:
    make_organisation("globex")
    key_create(actor=SYSTEM, organisation=acme, name=SCRIPT, scopes=["infer"])
    answer = operator_client.get(TRAIL)
    assert b"globex" not in answer.content
    assert SCRIPT not in answer.content.decode()
    assert SCRIPT in words(answer)
    assert "2 things were done about “namespace”" in get(operator_client, TRAIL, find="namespace")


def test_the_trail_is_paged_and_asked_for_together(operator_client: Client, acme: Organisation) -> None:
    with CaptureQueriesContext(connection) as few:
        get(operator_client, TRAIL)
    for number in range(1, 60):
        limits_put(actor=SYSTEM, organisation=acme, limits=Limits(max_keys=number), expected=None)
    with CaptureQueriesContext(connection) as many:
        first = get(operator_client, TRAIL)
    assert len(few) == len(many)
    assert "Records, 1 to 50 of 62" in first
    assert "max_keys was 58 → became 59" in first
    assert "Organisation created" in get(operator_client, TRAIL, page="2")
