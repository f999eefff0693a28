"""Organisations in the browser: the list, the front page of one, and what is made, renamed, stopped and ended."""

from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.analytics.models import Price
from tenants.actor import SYSTEM
from tenants.limits import Limits
from tenants.models import AuditRecord, Namespace, Operation, Organisation, PolicyLevel
from tenants.services.organisations import limits_put, organisation_update, organisations_create
from tests.database.factories import make_group, make_pin
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_key, make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
ORG = "/orgs/acme"


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


def space(slug: str = "chat", org: str = "acme") -> Namespace:
    return Namespace.objects.get(organisation__slug=org, slug=slug)


def used(slug: str = "chat", org: str = "acme", **more: int) -> None:
    store(Counted(space(slug, org), timezone.now(), counts(**more)))


def get(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return words(answer)


def do(client: Client, what: str, path: str = ORG, **told: Any) -> HttpResponse:
    return client.post(path, {"do": what, **told})  # type: ignore[return-value]


# The list


def test_the_list_says_of_each_organisation_its_state_and_its_last_24_hours(
    operator_client: Client, acme: Organisation
) -> None:
    make_organisation("globex")
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    used(requests=40, prompt=1000, cached=683)
    page = get(operator_client, "/orgs")
    assert page.startswith("1 of 2 organisations is active")
    assert "Acme acme suspended 2 68.3 % 1,000 40" in page
    assert "Globex globex active 1 – 0 0" in page


def test_a_rate_of_few_requests_says_so(operator_client: Client, acme: Organisation) -> None:
    used(requests=2, prompt=100, cached=100)
    assert "100.0 % few requests" in get(operator_client, "/orgs")


def test_the_list_is_searched_by_slug_and_by_name(operator_client: Client, acme: Organisation) -> None:
    make_organisation("globex")
    assert "Globex" not in get(operator_client, "/orgs", find="ACM")
    assert "1 organisation fits “glob”" in get(operator_client, "/orgs", find="glob")
    nothing = get(operator_client, "/orgs", find=SCRIPT)
    assert f"No slug and no name has “{SCRIPT}” in it." in nothing
    assert SCRIPT not in operator_client.get("/orgs", {"find": SCRIPT}).content.decode()


def test_the_list_is_ordered_by_what_was_counted_and_who_has_no_number_comes_last(
    operator_client: Client, acme: Organisation
) -> None:
    for slug in ("globex", "initech"):
        make_organisation(slug)
    used(requests=30, prompt=100, cached=90)
    used("default", "globex", requests=50, prompt=900, cached=90)

    def order(by: str) -> list[str]:
        page = get(operator_client, "/orgs", order=by)
        return sorted(("acme", "globex", "initech"), key=lambda slug: page.index(f" {slug} "))

    assert order("-hit") == ["acme", "globex", "initech"]
    assert order("hit") == ["globex", "acme", "initech"]
    assert order("-tokens") == ["globex", "acme", "initech"]
    assert order("-name") == ["initech", "globex", "acme"]
    assert order("no such column") == ["acme", "globex", "initech"]


def test_of_many_organisations_a_page_at_a_time_is_shown(operator_client: Client) -> None:
    organisations_create(actor=SYSTEM, wanted=[(f"org-{number:03}", f"Org {number:03}") for number in range(120)])
    first, last = get(operator_client, "/orgs"), get(operator_client, "/orgs", page="3")
    assert "Organisations, 1 to 50 of 120" in first
    assert "org-049" in first
    assert "org-050" not in first
    assert "Organisations, 101 to 120 of 120" in last
    assert "org-119" in last
    assert "101 to 120" in get(operator_client, "/orgs", page="9999999")
    for nonsense in ("0", "-1", "x", "²", "9" * 40):
        assert "1 to 50" in get(operator_client, "/orgs", page=nonsense)
    assert operator_client.get("/orgs", {"find": "\0"}).status_code == 200


@pytest.mark.parametrize("order", ["name", "-hit"])
def test_the_list_asks_as_much_for_many_as_for_few(operator_client: Client, acme: Organisation, order: str) -> None:
    with CaptureQueriesContext(connection) as few:
        get(operator_client, "/orgs", order=order)
    organisations_create(actor=SYSTEM, wanted=[(f"org-{number}", f"Org {number}") for number in range(60)])
    with CaptureQueriesContext(connection) as many:
        get(operator_client, "/orgs", order=order)
    assert len(many) == len(few)


# A new one


def test_an_operator_makes_an_organisation(operator_client: Client) -> None:
    answer = operator_client.post("/new-organisation", {"slug": "acme", "name": "Acme Inc."})
    assert (answer.status_code, answer["Location"]) == (302, ORG)
    assert "Acme Inc. is there, with the namespace default." in get(operator_client, ORG)
    assert AuditRecord.objects.filter(verb="organisation.create", actor_name="operator@luminet.example").exists()


@pytest.mark.parametrize(
    ("slug", "name", "said"),
    [
        ("", "Acme", "This field is required."),
        ("Not A Slug", "Acme", "1 to 63 of a-z, 0-9 and inner hyphens are a slug"),
        (SCRIPT, "Acme", "is none: 1 to 63"),
        ("acme", "x" * 150, "Has 150 characters, 100 is the most."),
        ("acme", "a\u202eb", "U+202E, which cannot be shown"),
        ("globex", "Globex", "is the slug of another organisation; choose a different one"),
        ("fleet", "Fleet", "is what the fleet itself is called; choose another"),
    ],
)
def test_what_is_wrong_with_a_new_organisation_stands_beside_its_field(
    operator_client: Client, slug: str, name: str, said: str
) -> None:
    make_organisation("globex")
    answer = operator_client.post("/new-organisation", {"slug": slug, "name": name})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in words(answer)
    assert "<title>Error: " in page
    assert SCRIPT not in page
    assert Organisation.objects.count() == 1


@pytest.mark.parametrize("slug", ["new", "delete", "keys"])
def test_no_slug_hides_behind_an_address_of_ours(operator_client: Client, slug: str) -> None:
    answer = operator_client.post("/new-organisation", {"slug": slug, "name": "Named oddly"})
    assert (answer.status_code, answer["Location"]) == (302, f"/orgs/{slug}")
    assert "Named oddly is there, with the namespace default." in get(operator_client, f"/orgs/{slug}")


# The front page


def test_the_front_page_says_what_the_organisation_has_and_how_its_caches_did(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(requests_per_minute=600), expected=None)
    used(requests=30, prompt=1000, cached=250, generated_tokens=7)
    used("default", requests=1, prompt=1000, cached=500)
    page = get(customer_client, ORG)
    assert "Acme has 37.5 % of its prompt tokens served from cache" in page
    assert "750 of 2,000 prompt tokens" in page
    assert "Limits 600 requests a minute" in page
    assert "2 namespaces, each with a cache of its own" in page
    assert (
        "chat 5 min sliding after last use, at most 24 h in all fleet default Change the time to live of chat "
        "fp8 fleet default 25.0 % 30 requests" in page
    )
    assert "Keys 0 that are not revoked" in page


def test_what_is_counted_of_the_whole_includes_namespaces_that_are_gone(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    used(requests=30, prompt=100, cached=50)
    Namespace.objects.filter(slug="chat").update(deleted_at=timezone.now())
    page = get(customer_client, ORG)
    assert "50 of 100 prompt tokens" in page
    assert "One namespace, the default" in page


def test_the_month_is_priced_and_example_prices_are_called_so(customer_client: Client, acme: Organisation) -> None:
    join(acme, "viewer")
    used(requests=30, prompt=2_000_000, cached=1_000_000, generated_tokens=0)
    unpriced = get(customer_client, ORG)
    assert "came to 30 requests so far" in unpriced
    assert "No price is set for these models" in unpriced
    price = {"model": "", "valid_from": "2020-01-01", "currency": "EUR", "input": 2, "cached_input": 1, "output": 8}
    made = Price.objects.create(**price, is_example=True)
    priced = get(customer_client, ORG)
    assert "At example prices, " in priced
    assert "comes to EUR 3.00 so far; caching saved EUR 1.00" in priced
    assert "nobody is charged these amounts" in priced
    Price.objects.filter(pk=made.pk).update(is_example=False)
    real = get(customer_client, ORG)
    assert "comes to EUR 3.00 so far" in real
    assert "example" not in real


def test_many_namespaces_are_paged_searched_and_asked_for_together(operator_client: Client, acme: Organisation) -> None:
    with CaptureQueriesContext(connection) as few:
        get(operator_client, ORG)
    template = space()
    Namespace.objects.bulk_create(
        [Namespace(organisation=acme, group=template.group, slug=f"ns-{number:03}") for number in range(60)]
    )
    for made in Namespace.objects.filter(slug__startswith="ns-"):
        PolicyLevel.objects.create(kind=PolicyLevel.Kind.NAMESPACE, namespace=made)
    with CaptureQueriesContext(connection) as many:
        page = get(operator_client, ORG)
    assert len(many) == len(few)
    assert "1 to 50 of 62" in page
    assert "ns-059" in get(operator_client, ORG, page="2")
    assert "1 namespace fits “ns-007”" in get(operator_client, ORG, find="ns-007")


# What is done there


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_who_is_no_admin_reads_and_changes_nothing(customer_client: Client, acme: Organisation, role: str) -> None:
    join(acme, role)
    page = get(customer_client, ORG)
    for deed in ("Create a namespace", "Save as revision", "Suspend", "Delete this organisation"):
        assert deed not in page
    for what in ("namespace", "rename", "suspend", "lift"):
        assert do(customer_client, what, **{"new-slug": "x", "edit-name": "x", "edit-revision": "1"}).status_code == 403
    acme.refresh_from_db()
    assert (acme.name, acme.state, acme.namespaces.count()) == ("Acme", "active", 2)


def test_an_admin_makes_a_namespace_but_does_not_choose_its_agents(customer_client: Client, acme: Organisation) -> None:
    join(acme)
    make_group("gpu")
    assert "Served by the agents of" not in get(customer_client, ORG)
    answer = do(customer_client, "namespace", **{"new-slug": "docs", "new-name": "Handbook", "new-group": "gpu"})
    assert (answer.status_code, answer["Location"]) == (302, ORG)
    assert (space("docs").name, space("docs").group.slug) == ("Handbook", "default")


def test_an_operator_chooses_the_agents_of_a_namespace(operator_client: Client, acme: Organisation) -> None:
    make_group("gpu")
    assert do(operator_client, "namespace", **{"new-slug": "docs", "new-group": "gpu"}).status_code == 302
    assert space("docs").group.slug == "gpu"
    refused = do(operator_client, "namespace", **{"new-slug": "more", "new-group": "nowhere"})
    assert refused.status_code == 422


def test_a_namespace_that_cannot_be_made_keeps_what_was_typed(operator_client: Client, acme: Organisation) -> None:
    answer = do(operator_client, "namespace", **{"new-slug": "chat", "new-name": SCRIPT})
    assert answer.status_code == 422
    assert "is the slug of another namespace of this organisation" in words(answer)
    page = answer.content.decode()
    assert 'value="chat"' in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert SCRIPT not in page
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(max_namespaces=2), expected=None)
    full = do(operator_client, "namespace", **{"new-slug": "third"})
    assert "max_namespaces: the limit is 2; ask your operator to raise it." in words(full)


def test_an_admin_renames_the_organisation_and_its_name_is_shown_as_text(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    assert do(customer_client, "rename", **{"edit-name": f"A {SCRIPT}", "edit-revision": "1"}).status_code == 302
    page = customer_client.get(ORG).content.decode()
    assert SCRIPT not in page
    assert "A &lt;script&gt;" in page


def test_a_second_tab_learns_of_the_change_and_keeps_its_text(operator_client: Client, acme: Organisation) -> None:
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, name="Acme Two")
    answer = do(operator_client, "rename", **{"edit-name": "Mine", "edit-revision": "1"})
    assert answer.status_code == 422
    assert "Somebody changed this organisation meanwhile: it is revision 2 now" in words(answer)
    assert "Its name is Acme Two" in words(answer)
    page = answer.content.decode()
    assert 'name="edit-name" value="Mine"' in page
    assert 'name="edit-revision" value="2"' in page
    acme.refresh_from_db()
    assert acme.name == "Acme Two"


def test_suspending_says_what_happens_and_asks_for_the_slug(operator_client: Client, acme: Organisation) -> None:
    make_key(acme)
    page = get(operator_client, ORG)
    assert "Suspending stops its 1 key, and deletes nothing" in page
    assert "Requests under way go on to their end." in page
    wrong = do(operator_client, "suspend", **{"stop-typed": "globex", "stop-revision": "1"})
    assert wrong.status_code == 422
    assert "“globex” is not acme. Nothing has happened." in words(wrong)
    assert do(operator_client, "suspend", **{"stop-typed": "acme", "stop-revision": "1"}).status_code == 302
    after = get(operator_client, ORG)
    assert "Acme is suspended: its keys are refused" in after
    assert "Lifting the suspension lets its keys work again" in after
    assert do(operator_client, "lift", **{"stop-revision": "1"}).status_code == 422  # somebody was faster
    assert do(operator_client, "lift", **{"stop-revision": "2"}).status_code == 302
    acme.refresh_from_db()
    assert acme.state == "active"


def test_an_admin_can_neither_suspend_nor_delete(customer_client: Client, acme: Organisation) -> None:
    join(acme)
    assert "Suspend" not in get(customer_client, ORG)
    assert do(customer_client, "suspend", **{"stop-typed": "acme", "stop-revision": "1"}).status_code == 403
    assert customer_client.get(f"{ORG}/delete").status_code == 404
    assert customer_client.post(f"{ORG}/delete", {"typed": "acme", "revision": "1"}).status_code == 404
    acme.refresh_from_db()
    assert acme.state == "active"


def test_a_suspended_organisation_is_read_by_its_people_and_changed_by_none_of_them(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    for path in ("", "/keys", "/members", "/limits", "/audit"):
        page = get(customer_client, ORG + path)
        assert "Acme is suspended: it can be read, not changed" in page
    refused = do(customer_client, "rename", **{"edit-name": "x", "edit-revision": "2"})
    assert refused.status_code == 403
    assert "This organisation is suspended" in refused.content.decode()
    assert "Create key" not in get(customer_client, f"{ORG}/keys")


def test_a_deed_that_does_not_exist_is_not_there(operator_client: Client, acme: Organisation) -> None:
    assert do(operator_client, "explode").status_code == 404
    assert operator_client.post(ORG).status_code == 404


# Deleting


def test_deleting_says_how_much_goes_and_asks_for_the_slug(operator_client: Client, acme: Organisation) -> None:
    make_key(acme)
    make_pin(space())
    path = f"{ORG}/delete"
    page = get(operator_client, path)
    assert "Deleting Acme ends 1 key and 2 caches" in page
    assert "1 pin" in page
    wrong = operator_client.post(path, {"typed": "Acme", "revision": "1"})
    assert wrong.status_code == 422
    assert "“Acme” is not acme. Nothing has happened." in words(wrong)
    assert operator_client.post(path, {"typed": "acme", "revision": "7"}).status_code == 422
    assert operator_client.post(path, {}).status_code == 422
    acme.refresh_from_db()
    assert acme.state == "active"
    answer = operator_client.post(path, {"typed": "acme", "revision": "1"})
    assert (answer.status_code, answer["Location"]) == (302, f"/operations/{Operation.objects.get().pk}")
    receipts = get(operator_client, answer["Location"])
    assert "Acme (acme) is deleted" in receipts
    assert "The purge of acme is done: no agent was concerned" in receipts
    assert operator_client.get(ORG).status_code == 404
