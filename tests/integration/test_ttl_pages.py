"""The first thing people change in a browser: a time to live. The same deed, and the same refusals, as in the API."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.dashboard.policies.published import published_words
from controlplane.fleet.models import OperationStep
from controlplane.rollouts.models import Rollout
from tenants.actor import SYSTEM
from tenants.bounds import Bounds, SecondsRange
from tenants.levels import FLEET, Place, level_of
from tenants.models import AuditRecord, Namespace, Organisation, PolicyLevel, PolicyRevision, User
from tenants.services.namespaces import namespace_delete
from tenants.services.organisations import bounds_put, organisation_update
from tests.database.factories import make_agent, publish
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
DONE = {"state": OperationStep.State.DONE, "done_at": timezone.now()}
TTL = "/orgs/acme/namespaces/default/ttl"


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    return join(make_organisation("acme", "chat"), role="editor").organisation


def level(slug: str = "default") -> PolicyLevel:
    namespace = Namespace.objects.get(organisation__slug="acme", slug=slug)
    return level_of(Place(namespace.organisation, namespace))


def send(client: Client, amount: str = "10", unit: str = "min", path: str = TTL, **more: Any) -> HttpResponse:
    told = {"amount": amount, "unit": unit, "note": "", "revision": "0", **more}
    return client.post(path, told)  # type: ignore[return-value]


def test_a_customer_sets_a_namespaces_ttl_and_everything_else_it_says_stays(
    customer_client: Client, acme: Organisation
) -> None:
    publish(Place(acme, level().namespace), kv_dtype="int4", ttl_seconds=60)
    answer = send(customer_client, "1.5", "h", revision="1", note="Chats pause longer")
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert (level().revision, level().policy) == (2, {"kv_dtype": "int4", "ttl_seconds": 5400})
    revision = PolicyRevision.objects.get(level=level(), number=2)
    assert (revision.note, revision.author) == ("Chats pause longer", "someone@acme.example")
    record = AuditRecord.objects.latest("pk")
    assert (record.verb, record.target, record.actor_name) == ("policy.publish", "acme/default", "someone@acme.example")


def test_where_no_agent_serves_it_the_page_says_so(customer_client: Client, acme: Organisation) -> None:
    send(customer_client)
    told = words(customer_client.get("/"))
    assert "acme/default: revision 1 is published. No agent serves it yet; an agent that joins gets it." in told
    assert "default 10 min sliding after last use" in told


def test_the_page_says_how_many_agents_have_acknowledged_it_and_counts_on(
    customer_client: Client, acme: Organisation
) -> None:
    for name in ("agent-1", "agent-2"):
        make_agent(name)
    home = send(customer_client)["Location"]
    rollout = Rollout.objects.get()
    assert home == f"/?rollout={rollout.pk}"
    begin = "acme/default: revision 1 is published."
    on_its_way = f"{begin} 0 of 2 agents acknowledged it so far; it is on its way to the others."
    assert on_its_way in words(customer_client.get(home))
    fragment = f"/published/{rollout.pk}"
    assert customer_client.get(fragment, {"seen": "0"}).status_code == 204
    OperationStep.objects.filter(agent="agent-1").update(**DONE)
    assert "1 of 2 agents" in customer_client.get(fragment, {"seen": "0"}).content.decode()
    OperationStep.objects.update(**DONE)
    Rollout.objects.update(state=Rollout.State.DONE, finished_at=timezone.now())
    over = customer_client.get(fragment, {"seen": "1"})
    assert over.status_code == 286  # HTMX asks no more
    assert f"{begin} All 2 agents acknowledged it." in over.content.decode()


def test_an_operator_is_led_on_to_where_it_can_be_held_or_taken_back(
    operator_client: Client, customer_client: Client, acme: Organisation
) -> None:
    rollout = Rollout.objects.create(
        level=level_of(Place(acme)),
        place="acme",
        revision=1,
        base_revision=0,
        strategy="canary",
        steps=[50, 100],
        bake_seconds=60,
    )
    fragment, page = f"/published/{rollout.pk}", f'href="/rollouts/{rollout.pk}"'
    assert page in operator_client.get(fragment).content.decode()
    assert page not in customer_client.get(fragment).content.decode(), "that page is not theirs"
    assert "it goes on step by step, while its guards are kept" in published_words(rollout, done=1, total=2)
    rollout.state, rollout.why = Rollout.State.ROLLED_BACK, "No agent acknowledged it within 3600 s."
    assert published_words(rollout, done=1, total=2).endswith("No agent acknowledged it within 1 h.")


def test_somebody_elses_rollout_is_not_told_of(customer_client: Client, acme: Organisation) -> None:
    make_agent()
    globex = make_organisation("globex")
    home = customer_client.get("/").content
    level_of_globex = level_of(Place(globex))
    rollout = Rollout.objects.create(
        level=level_of_globex, place="globex", revision=1, base_revision=0, strategy="all", steps=[100], bake_seconds=0
    )
    assert "globex" not in customer_client.get(f"/?rollout={rollout.pk}").content.decode()
    assert home
    for unknown in (rollout.pk, uuid4()):
        answer = customer_client.get(f"/published/{unknown}")
        assert (answer.status_code, answer["HX-Reswap"], answer.content) == (286, "none", b"")  # and nobody asks on
    for nonsense in ("x", "", "\0"):
        assert customer_client.get("/", {"rollout": nonsense}).status_code == 200


def test_what_is_out_of_bounds_is_told_beside_the_field_and_what_was_typed_stays(
    customer_client: Client, acme: Organisation
) -> None:
    bounds_put(actor=SYSTEM, organisation=acme, expected=None, bounds=Bounds(ttl_seconds=SecondsRange(min=60, max=600)))
    answer = send(customer_client, "2", "h", note="because")
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "2 h is more than 10 min, the most you may choose" in words(answer)
    (field,) = re.findall(r'<input[^>]*name="amount" value="2"[^>]*>', page)
    assert 'aria-invalid="true"' in field
    assert 'aria-describedby="ttl-acme-default-amount' in field
    assert 'value="h" selected' in page
    assert 'name="note" value="because"' in page
    assert page.count('<details class="edit" name="ttl" open>') == 1
    assert "Your operator lets you choose 1 min to 10 min." in words(answer)
    assert level().revision == 0


def test_a_refusal_stands_on_top_of_the_page_too_and_its_field_has_the_focus(
    customer_client: Client, acme: Organisation
) -> None:
    answer = send(customer_client, "8", "d")
    page = answer.content.decode()
    told = "Not published: 8 d is more than 7 d, the most there is. To the time to live of default"
    assert words(answer).startswith(told)
    assert '<a href="#ttl-acme-default">' in page
    assert page.count('id="ttl-acme-default"') == 1
    assert "<title>Error: " in page
    (field,) = re.findall(r"<input[^>]*autofocus[^>]*>", page)
    assert 'name="amount"' in field
    assert "autofocus" not in customer_client.get("/").content.decode()


def test_whoever_signed_out_elsewhere_is_told_so_in_place_of_the_sentence(
    customer_client: Client, acme: Organisation
) -> None:
    make_agent()
    rollout = send(customer_client)["Location"].partition("=")[2]
    answer = Client().get(f"/published/{rollout}")
    assert answer.status_code == 286
    assert "Your session has ended." in answer.content.decode()


def test_of_many_agents_the_sentence_asks_for_a_count_and_not_for_each(
    customer_client: Client, acme: Organisation
) -> None:
    for number in range(10):
        make_agent(f"agent-{number}")
    rollout = send(customer_client)["Location"].partition("=")[2]
    with CaptureQueriesContext(connection) as asked:
        page = customer_client.get(f"/published/{rollout}", {"seen": "-1"})
    assert "0 of 10 agents" in page.content.decode()
    (steps,) = [one["sql"] for one in asked if "operationstep" in one["sql"]]
    assert "COUNT(" in steps


def test_what_contradicts_the_rest_of_the_policy_is_told(customer_client: Client, acme: Organisation) -> None:
    answer = send(customer_client, "3", "d")
    assert answer.status_code == 422
    assert "3 d is longer than max_age_seconds, which is 24 h" in words(answer)


def test_a_note_that_is_too_long_is_told_beside_the_note(customer_client: Client, acme: Organisation) -> None:
    answer = send(customer_client, note="x" * 501)
    assert (answer.status_code, level().revision) == (422, 0)
    assert "has 501 characters, 500 is the most" in words(answer)


def test_what_somebody_published_meanwhile_is_not_overwritten_unseen(
    customer_client: Client, acme: Organisation
) -> None:
    publish(Place(acme, level().namespace), ttl_seconds=60)
    answer = send(customer_client, revision="0")
    assert answer.status_code == 422
    assert "Revision 1 was published meanwhile by an operator, " in words(answer)
    assert " UTC; this page shows it now." in words(answer)
    assert "default 1 min sliding" in words(answer)
    assert level().policy == {"ttl_seconds": 60}
    assert 'name="revision" value="1"' in answer.content.decode()
    assert send(customer_client, revision="1").status_code == 302  # sent again, having seen it
    assert level().policy == {"ttl_seconds": 600}


def test_what_it_says_already_is_not_published_again(customer_client: Client, acme: Organisation) -> None:
    publish(Place(acme, level().namespace), ttl_seconds=600)
    answer = send(customer_client, "600", "s", revision="1")
    assert "It is 10 min already: revision 1 says so." in words(answer)
    assert level().revision == 1


def test_who_may_only_read_gets_no_form_and_is_refused(customer_client: Client) -> None:
    join(make_organisation("acme"), role="viewer")
    assert TTL not in customer_client.get("/").content.decode()
    assert send(customer_client).status_code == 403
    assert level().revision == 0


def test_in_a_suspended_organisation_nothing_is_changed(customer_client: Client, acme: Organisation) -> None:
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    assert TTL not in customer_client.get("/").content.decode()
    answer = send(customer_client)
    assert answer.status_code == 403
    assert "This organisation is suspended" in answer.content.decode()
    assert level().revision == 0


def test_where_only_the_operator_may_change_it_the_page_says_so(customer_client: Client, acme: Organisation) -> None:
    bounds_put(actor=SYSTEM, organisation=acme, expected=None, bounds=Bounds())
    told = customer_client.get("/")
    assert TTL not in told.content.decode()
    assert "Only your operator may change how long blocks live here." in words(told)
    assert send(customer_client).status_code == 422


def test_what_is_not_theirs_and_what_is_not_there_are_told_alike(customer_client: Client, acme: Organisation) -> None:
    make_organisation("globex")
    gone = Namespace.objects.select_related("organisation").get(organisation=acme, slug="chat")
    namespace_delete(actor=SYSTEM, namespace=gone, expected=None)
    paths = (
        "globex/namespaces/default",
        "nowhere/namespaces/default",
        "acme/namespaces/nothing",
        "acme/namespaces/chat",
    )
    answers = [send(customer_client, path=f"/orgs/{path}/ttl") for path in paths]
    assert {answer.status_code for answer in answers} == {404}
    assert not PolicyRevision.objects.exists()


def test_an_operator_sets_the_fleets_default(operator_client: Client) -> None:
    assert "Blocks live 5 min sliding by default" in words(operator_client.get("/"))
    answer = send(operator_client, "10", "min", "/fleet/ttl")
    assert answer.status_code == 302
    assert level_of(FLEET).policy == {"ttl_seconds": 600}
    told = words(operator_client.get("/"))
    assert "The fleet’s default: revision 1 is published." in told
    assert "Blocks live 10 min sliding by default" in told


def test_the_fleets_form_says_where_its_default_is_in_force_and_to_whom_it_goes(operator_client: Client) -> None:
    acme, globex = make_organisation("acme", "chat", "mail"), make_organisation("globex")
    publish(Place(acme, Namespace.objects.get(slug="chat")), ttl_seconds=60)
    publish(Place(globex), ttl_seconds=60)
    gone = Namespace.objects.select_related("organisation").get(slug="mail")
    told = words(operator_client.get("/"))
    assert "In force in 2 of 4 namespaces: where neither the organisation nor the namespace says otherwise." in told
    assert "Publish revision 1 " in f"{told} "
    namespace_delete(actor=SYSTEM, namespace=gone, expected=None)
    for name in ("agent-1", "agent-2"):
        make_agent(name)
    told = words(operator_client.get("/"))
    assert "In force in 1 of 3 namespaces" in told
    assert "Publish revision 1 to 2 agents at once" in told
    assert told.index("shows and takes orders") < told.index("by default")  # what is wrong comes first


def test_what_is_refused_of_the_fleets_default_is_told_there(operator_client: Client) -> None:
    answer = send(operator_client, "8", "d", "/fleet/ttl")
    assert answer.status_code == 422
    assert "8 d is more than 7 d, the most there is" in words(answer)
    assert 'name="amount" value="8"' in answer.content.decode()


def test_the_fleets_default_is_the_operators_alone(customer_client: Client, acme: Organisation) -> None:
    assert send(customer_client, path="/fleet/ttl").status_code == 404
    assert level_of(FLEET).revision == 0


@pytest.mark.parametrize("path", [TTL, "/fleet/ttl"])
def test_nobody_changes_anything_unless_signed_in(client: Client, path: str) -> None:
    make_organisation("acme")
    answer = send(client, path=path)
    assert answer.status_code == 403
    assert "Your session had ended when you sent this form. Nothing was done" in words(answer)
    assert not PolicyRevision.objects.exists()


def test_a_form_of_another_site_changes_nothing(acme: Organisation) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(email="someone@acme.example"))
    assert send(strict).status_code == 403
    assert level().revision == 0


def test_whoever_reloads_a_refused_form_comes_home(customer_client: Client, acme: Organisation) -> None:
    answer = customer_client.get(TTL)
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_the_homes_show_a_tile_before_anything_was_counted(customer_client: Client, acme: Organisation) -> None:
    told = words(customer_client.get("/"))
    assert "Prompt tokens served from cache, 0 s of 24 h – % no value yet" in told
    assert "Nothing has been counted in these 24 h. What to do next" in told.replace("\xa0", " ")
    assert re.search(r"as of \d\d:\d\d:\d\d UTC", told)
