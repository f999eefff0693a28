"""A namespace's pages: what its cache does, who may do what to it, its pins, its purges and their receipts."""

import html
import json
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.analytics.models import Residence
from controlplane.fleet.intake import Ended
from controlplane.fleet.models import OperationStep
from controlplane.fleet.operations import steps_end
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import AuditRecord, Member, Namespace, Operation, Organisation, Pin, User
from tenants.services.namespaces import namespace_update
from tenants.services.operations import purge
from tenants.services.organisations import organisation_update
from tenants.services.pins import pin_content
from tests.database.factories import make_agent, make_pin, publish
from tests.usage.evicted import evict
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
CHAT = "/orgs/acme/namespaces/chat"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    return join(make_organisation("acme", "chat"), role="editor").organisation


@pytest.fixture
def managed(customer_client: Client) -> Organisation:
    return join(make_organisation("acme", "chat"), role="admin").organisation


def chat() -> Namespace:
    return Namespace.objects.select_related("organisation").get(organisation__slug="acme", slug="chat")


def seen(client: Client, path: str, **told: Any) -> str:
    answer = client.get(path, told)
    assert answer.status_code == 200
    return words(answer)


def used(requests: int = 30, prompt: int = 4000, cached: int = 3000, **more: int) -> None:
    missed = prompt - cached
    store(Counted(chat(), timezone.now(), counts(requests, prompt, cached, missed_cold=missed, **more)))


def resides(namespace: Namespace, size: int, agent: str = "agent-1", **lost: int) -> None:
    Residence.objects.create(
        agent=agent, namespace_id=namespace.pk, boot="b", resident_bytes=size, at=timezone.now(), **lost
    )


# The front page


def test_the_front_page_says_that_nothing_was_measured_before_anything_was(
    customer_client: Client, acme: Organisation
) -> None:
    told = seen(customer_client, CHAT)
    assert "Nothing has been measured in chat yet" in told
    assert "There is no hit rate to draw yet" in told
    assert "No agent holds anything of it now" in told
    assert " %" not in told[: told.index("There is no hit rate")].replace("100 % of each pool", "")


def test_the_headline_is_the_hit_rate_and_every_number_has_its_basis(
    customer_client: Client, acme: Organisation
) -> None:
    used()
    resides(chat(), 3 << 20)
    told = seen(customer_client, CHAT)
    assert "Hit rate 75.0 %" in told
    assert "3,000 tokens of 4,000 prompt tokens in 30 requests" in told
    assert "too few to compare wants 20 hits and 20 misses" in told
    assert "75.0 % of prompt tokens came from the cache" in told
    assert "New to the cache 1,000 25.0 %" in told
    assert "1 agent holds blocks of it" in told
    assert "agent-1 3.0 MiB 100.0 %" in told


def test_few_requests_make_no_hit_rate(customer_client: Client, acme: Organisation) -> None:
    used(requests=3)
    assert "3 requests so far in chat: too few for a hit rate" in seen(customer_client, CHAT)


def test_the_window_is_chosen_by_a_link_and_nonsense_is_the_usual_one(
    customer_client: Client, acme: Organisation
) -> None:
    chosen = re.compile(r'href="\?window=(\w+)" aria-current="page"')
    for asked, shown in (("7d", "7d"), ("", "24h"), (HOSTILE, "24h"), ("1h", "1h")):
        page = customer_client.get(CHAT, {"window": asked}).content.decode()
        assert chosen.findall(page) == [shown]


def test_a_revision_that_changed_something_here_is_marked_and_others_are_not(
    customer_client: Client, acme: Organisation
) -> None:
    used()
    publish(Place(acme, chat()), ttl_seconds=600)
    publish(FLEET, ttl_seconds=60)  # the namespace says otherwise
    told = seen(customer_client, CHAT)
    assert re.search(r"rev 1 \d\d \w+ \d\d:\d\d UTC ?, TTL: .+? → 10 min", told)
    assert len(re.findall(r"rev 1 \d\d", told)) == 1
    assert "Blocks live 10 min after last use, at most 24 h" in told
    assert "Policy, revision 1" in told


def test_its_numbers_are_swapped_in_alone(customer_client: Client, acme: Organisation) -> None:
    used()
    part = customer_client.get(f"{CHAT}/now", {"window": "1h"}).content.decode()
    assert "<main" not in part
    assert 'id="headline" hx-swap-oob="true"' in part
    assert "now?window=1h" in part


def test_customers_learn_by_whose_doing_blocks_went_and_no_names(
    customer_client: Client, operator_client: Client, acme: Organisation
) -> None:
    globex = make_organisation("globex").namespaces.get()
    store(Counted(chat(), timezone.now(), {"evicted_blocks": 7, "quota_blocks": 2}, kind="cache"))
    evict(chat(), globex, 4)
    evict(chat(), chat(), 3)
    evict(chat(), chat(), 2, cause="quota")
    evict(globex, chat(), 1)
    customers, operators = (seen(one, CHAT) for one in (customer_client, operator_client))
    assert "4 blocks gave way to fleet pressure and 5 blocks gave way to your own traffic in 24 h" in customers
    assert "globex" not in customers
    part = customer_client.get(f"{CHAT}/evictions")
    assert "4 blocks gave way to fleet pressure and 5 blocks gave way to your own traffic in 24 h" in words(part)
    assert "globex" not in part.content.decode()
    assert "globex" in operator_client.get(f"{CHAT}/evictions").content.decode()
    assert "5 blocks gave way to its own traffic" in operators
    assert "globex/default evicted most of chat: 4 blocks, 44.4 % of these" in operators
    assert "acme/chat its own traffic 33.3 % 3 3.0 KiB the pool was full" in operators
    assert "acme/chat its own traffic 22.2 % 2 2.0 KiB its own limit" in operators
    assert "chat evicted globex/default most: 1 block, 100.0 % of these" in operators


def test_the_front_page_asks_as_much_of_many_agents_and_pairs_as_of_few(operator_client: Client) -> None:
    make_organisation("acme", "chat")
    resides(chat(), 100)
    other = make_organisation("umbrella").namespaces.get()
    evict(chat(), other, 1)
    evict(other, chat(), 1)
    with CaptureQueriesContext(connection) as few:
        operator_client.get(CHAT)
    many = make_organisation("globex", *(f"n{number}" for number in range(12)))
    for number, one in enumerate(many.namespaces.all()):
        evict(chat(), one, number)
        evict(one, chat(), number)
    for number in range(2, 12):
        resides(chat(), number, agent=f"agent-{number}")
    with CaptureQueriesContext(connection) as more:
        operator_client.get(CHAT)
    assert len(more) == len(few)


# Its name and its end


def test_an_admin_renames_it_and_a_hostile_name_is_shown_as_text(
    customer_client: Client, managed: Organisation
) -> None:
    answer = customer_client.post(f"{CHAT}/edit", {"deed": "rename", "name": HOSTILE, "revision": chat().revision})
    assert (answer.status_code, answer["Location"]) == (302, CHAT)
    assert chat().name == HOSTILE
    for path in (CHAT, f"{CHAT}/edit"):
        page = customer_client.get(path).content.decode()
        assert HOSTILE not in page
        assert html.escape(HOSTILE) in page


def test_a_second_tab_learns_the_new_name_and_keeps_its_own(customer_client: Client, managed: Organisation) -> None:
    old = chat().revision
    namespace_update(actor=SYSTEM, namespace=chat(), expected=None, name="Somebody else's")
    answer = customer_client.post(f"{CHAT}/edit", {"deed": "rename", "name": "Mine", "revision": old})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "Somebody changed it meanwhile: it is called “Somebody else's” now." in words(answer)
    assert 'name="name" value="Mine"' in page
    assert f'name="revision" value="{old + 1}"' in page
    assert chat().name == "Somebody else's"


@pytest.mark.parametrize("name", ["x" * 101, "a\u202eb", "a\0b"])
def test_a_name_that_is_none_is_told_beside_it(customer_client: Client, managed: Organisation, name: str) -> None:
    answer = customer_client.post(f"{CHAT}/edit", {"deed": "rename", "name": name, "revision": chat().revision})
    assert answer.status_code == 422
    assert 'id="id_name_error"' in answer.content.decode()
    assert chat().name == ""


def test_it_is_deleted_by_whoever_types_its_name(customer_client: Client, managed: Organisation) -> None:
    told = {"deed": "delete", "confirm": "chat", "revision": chat().revision}
    for typed in ("", "Chat", "default", HOSTILE):
        answer = customer_client.post(f"{CHAT}/edit", {**told, "confirm": typed})
        assert answer.status_code == 422
        assert HOSTILE not in answer.content.decode()
    assert chat().deleted_at is None
    answer = customer_client.post(f"{CHAT}/edit", told)
    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.pk}"
    assert chat().deleted_at is not None
    assert "The purge of acme/chat is done: no agent was concerned" in seen(customer_client, answer["Location"])
    assert customer_client.get(CHAT).status_code == 404


def test_what_was_renamed_meanwhile_is_not_deleted_unseen(customer_client: Client, managed: Organisation) -> None:
    old = chat().revision
    namespace_update(actor=SYSTEM, namespace=chat(), expected=None, name="Production")
    told = {"deed": "delete", "confirm": "chat", "revision": old}
    answer = customer_client.post(f"{CHAT}/edit", told)
    assert answer.status_code == 422
    assert "it is called “Production” now" in words(answer)
    assert chat().deleted_at is None


def test_default_is_never_deleted(customer_client: Client, managed: Organisation) -> None:
    path = "/orgs/acme/namespaces/default/edit"
    assert "default stays" in seen(customer_client, path)
    revision = Namespace.objects.get(slug="default").revision
    answer = customer_client.post(path, {"deed": "delete", "confirm": "default", "revision": revision})
    assert answer.status_code == 422
    assert Namespace.objects.get(slug="default").deleted_at is None


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_who_may_not_manage_is_told_and_refused(customer_client: Client, role: str) -> None:
    join(make_organisation("acme", "chat"), role=role)
    assert "Rename or delete" not in seen(customer_client, CHAT)
    told = seen(customer_client, f"{CHAT}/edit")
    assert "Only admins of Acme may rename or delete namespaces." in told
    answer = customer_client.post(f"{CHAT}/edit", {"deed": "delete", "confirm": "chat", "revision": chat().revision})
    assert answer.status_code == 403
    assert chat().deleted_at is None


# Pins


def pinned(client: Client, path: str = f"{CHAT}/pins", **told: str) -> HttpResponse:
    content = json.dumps([{"role": "system", "content": "Secret words."}])
    sent = {"name": "handbook", "model": "m", "kind": "messages", "content": content, "expires_at": "", **told}
    return client.post(path, sent)  # type: ignore[return-value]


def test_an_editor_pins_a_prefix_and_nobody_reads_it_again(customer_client: Client, acme: Organisation) -> None:
    publish(Place(acme, chat()), pin_share=0.1)
    make_agent()
    assert "Nothing is pinned in chat" in seen(customer_client, f"{CHAT}/pins")
    answer = pinned(customer_client, expires_at="2036-01-31T12:30")
    assert (answer.status_code, answer["Location"]) == (302, f"{CHAT}/pins")
    pin = Pin.objects.get()
    assert pin_content(pin) == [{"role": "system", "content": "Secret words."}]
    assert pin.expires_at is not None
    assert pin.expires_at.isoformat() == "2036-01-31T12:30:00+00:00"
    page = customer_client.get(f"{CHAT}/pins")
    assert "1 pin is wanted on 1 agent, in at most 10 % of each pool" in words(page)
    assert "31 Jan 2036, 12:30 UTC" in words(page)
    assert "Secret words." not in page.content.decode()
    ending = customer_client.get(f"{CHAT}/pins/{pin.pk}/end")
    assert "Secret words." not in ending.content.decode()


def test_a_pin_without_room_is_told_as_such(customer_client: Client, acme: Organisation) -> None:
    make_pin(chat())
    told = seen(customer_client, f"{CHAT}/pins")
    assert "1 pin is wanted, and the policy gives pins no room" in told
    assert "agents keep none of them" in told


def test_what_a_prompt_begins_with_is_pinned_as_it_was_typed(customer_client: Client, acme: Organisation) -> None:
    assert pinned(customer_client, kind="prompt", content=" You are\n kind. ").status_code == 302
    assert pin_content(Pin.objects.get()) == " You are\n kind. "


@pytest.mark.parametrize(
    ("told", "field", "said"),
    [
        ({"name": ""}, "name", "This field is required."),
        ({"name": "a\u202eb"}, "name", "Holds the character U+202E"),
        ({"model": "no model!"}, "model", "cannot be the name of a model"),
        ({"content": ""}, "content", "This field is required."),
        ({"content": "hello"}, "content", "This is no JSON"),
        ({"content": "[]"}, "content", "Messages are a list with at least one"),
        ({"content": '["x"]'}, "content", "Message 1 has no role"),
        ({"content": '[{"role": "user", "content": NaN}]'}, "content", "NaN is no number of JSON"),
        ({"content": '[{"role": "user", "content": "\\ud800"}]'}, "content", "This holds what is no text"),
        ({"content": "[" * 5000}, "content", "This is"),
        ({"content": '[{"role": "user", "x": ' + "[" * 50 + "]" * 50 + "}]"}, "content", "more than 32 levels"),
        ({"content": "x" * 600_000, "kind": "prompt"}, "content", "at most 524288"),
        ({"content": "ä" * 300_000, "kind": "prompt"}, "content", "524288 is the most"),
        ({"expires_at": "2020-01-01T00:00"}, "expires_at", "has passed"),
        ({"expires_at": "9999-12-31T23:59"}, "expires_at", "more than 100 years ahead"),
        ({"expires_at": "soon"}, "expires_at", "Enter a valid date/time."),
        ({"kind": "token_ids"}, "kind", "Select a valid choice."),
    ],
)
def test_what_cannot_be_pinned_is_told_beside_its_field(
    customer_client: Client, acme: Organisation, told: dict[str, str], field: str, said: str
) -> None:
    answer = pinned(customer_client, **told)
    page = answer.content.decode()
    assert answer.status_code == 422
    (errors,) = re.findall(rf'<div id="id_{field}_error">(.*?)</div>', page)
    assert said in html.unescape(errors)
    assert not Pin.objects.exists()


def test_what_was_typed_stays_and_is_text(customer_client: Client, acme: Organisation) -> None:
    page = pinned(customer_client, name=HOSTILE, model=HOSTILE, content=HOSTILE, expires_at=HOSTILE).content.decode()
    assert HOSTILE not in page
    assert page.count(html.escape(HOSTILE)) >= 4


def test_a_name_is_pinned_once(customer_client: Client, acme: Organisation) -> None:
    pinned(customer_client)
    assert "choose a different one" in words(pinned(customer_client))
    assert Pin.objects.count() == 1


def test_a_pin_is_taken_away_by_whoever_types_its_name(customer_client: Client, acme: Organisation) -> None:
    path = f"{CHAT}/pins/{make_pin(chat()).pk}/end"
    assert "Unpin handbook?" in seen(customer_client, path)
    assert customer_client.post(path, {"confirm": "chat"}).status_code == 422
    assert Pin.objects.exists()
    assert customer_client.post(path, {"confirm": "handbook"})["Location"] == f"{CHAT}/pins"
    assert not Pin.objects.exists()
    assert customer_client.post(path, {"confirm": "handbook"}).status_code == 404


def test_a_pin_of_another_namespace_is_not_there(customer_client: Client, acme: Organisation) -> None:
    other = make_pin(Namespace.objects.select_related("organisation").get(slug="default"))
    foreign = make_pin(make_organisation("globex").namespaces.select_related("organisation").get())
    for pin in (other, foreign):
        assert customer_client.post(f"{CHAT}/pins/{pin.pk}/end", {"confirm": pin.name}).status_code == 404
    assert Pin.objects.count() == 2


def test_who_may_only_read_sees_pins_and_makes_none(customer_client: Client) -> None:
    join(make_organisation("acme", "chat"), role="viewer")
    pin = make_pin(chat())
    told = seen(customer_client, f"{CHAT}/pins")
    assert "You may read pins here." in told
    assert "Unpin" not in told
    assert pinned(customer_client, name="more").status_code == 403
    assert customer_client.post(f"{CHAT}/pins/{pin.pk}/end", {"confirm": pin.name}).status_code == 403
    assert Pin.objects.get() == pin


def test_pins_are_paged_and_asked_for_at_once(customer_client: Client, acme: Organisation) -> None:
    make_pin(chat(), "a0")
    with CaptureQueriesContext(connection) as few:
        customer_client.get(f"{CHAT}/pins")
    for number in range(60):
        make_pin(chat(), f"b{number:02}")
    with CaptureQueriesContext(connection) as many:
        page = seen(customer_client, f"{CHAT}/pins")
    assert len(many) == len(few)
    assert "b48" in page
    assert "b49" not in page
    assert "Page 1 of 2" in page
    assert "b59" in seen(customer_client, f"{CHAT}/pins", page="2")
    assert "sealed_content" not in "".join(one["sql"] for one in many)


# Purges and their receipts


def test_a_purge_says_what_will_go_and_wants_the_name(customer_client: Client, acme: Organisation) -> None:
    resides(chat(), 2 << 20)
    resides(chat(), 1 << 20, agent="agent-2")
    make_pin(chat())
    told = seen(customer_client, f"{CHAT}/purge")
    assert "A purge of chat would drop 3.0 MiB on 2 agents" in told
    assert "1 pin is there." in told
    for typed in ("", "acme", HOSTILE):
        answer = customer_client.post(f"{CHAT}/purge", {"confirm": typed, "include_pins": "on"})
        assert answer.status_code == 422
        assert HOSTILE not in answer.content.decode()
        assert re.search(r'<input[^>]*name="include_pins"[^>]*checked', answer.content.decode())
    assert chat().epoch == 1
    answer = customer_client.post(f"{CHAT}/purge", {"confirm": "chat"})
    assert answer["Location"] == f"/operations/{Operation.objects.get().pk}"
    assert (chat().epoch, Pin.objects.count()) == (2, 1)
    assert AuditRecord.objects.latest("pk").verb == "cache.purge"
    assert "by someone@acme.example" not in told
    assert "Purges before" in seen(customer_client, f"{CHAT}/purge")


def test_pins_are_purged_where_they_are_included(customer_client: Client, acme: Organisation) -> None:
    make_pin(chat())
    customer_client.post(f"{CHAT}/purge", {"confirm": "chat", "include_pins": "on"})
    assert not Pin.objects.exists()


def test_receipts_tick_in_until_all_have_proved_it(customer_client: Client, acme: Organisation) -> None:
    for name in ("agent-1", "agent-2"):
        make_agent(name)
    path = customer_client.post(f"{CHAT}/purge", {"confirm": "chat"})["Location"]
    told = customer_client.get(path)
    assert "The purge of acme/chat: 0 of 2 agents have proved it" in words(told)
    assert f'hx-get="{path}/now?seen=0"' in told.content.decode()
    assert customer_client.get(f"{path}/now", {"seen": "0"}).status_code == 204
    proves("agent-2", blocks=1200, size=3 << 20)
    ticked = customer_client.get(f"{path}/now", {"seen": "0"})
    assert ticked.status_code == 200
    assert "1 of 2 agents has proved it" in words(ticked)
    assert "agent-2 proved acme/chat 1,200 3.0 MiB" in words(ticked)
    assert "agent-1 awaited acme/chat – – –" in words(ticked)
    proves("agent-1", blocks=0, size=0)
    over = customer_client.get(f"{path}/now", {"seen": "1"})
    assert over.status_code == 286  # HTMX asks no more
    assert "hx-get" not in over.content.decode()
    assert "The purge of acme/chat is done: all 2 agents have proved it" in words(over)
    assert "1,200 blocks, 3.0 MiB, proved gone" in words(over)


def proves(agent: str, *, blocks: int, size: int, note: str = "", is_done: bool = True) -> None:
    step = OperationStep.objects.get(agent=agent)
    steps_end([Ended(step.pk, is_done, blocks=blocks, bytes=size, note=note)], now=timezone.now())


def test_an_agent_without_proof_is_told_with_why(customer_client: Client, acme: Organisation) -> None:
    make_agent()
    path = customer_client.post(f"{CHAT}/purge", {"confirm": "chat"})["Location"]
    proves("agent-1", blocks=0, size=0, note=f"revoked {HOSTILE}")
    page = customer_client.get(path)
    assert "The purge of acme/chat is over: 0 of 1 agent proved it" in words(page)
    assert "no proof revoked" in words(page)
    assert HOSTILE not in page.content.decode()


def test_somebody_elses_operation_is_not_there(customer_client: Client, acme: Organisation) -> None:
    foreign = purge(actor=SYSTEM, organisation=make_organisation("globex"))
    for pk in (foreign.pk, uuid4()):
        assert customer_client.get(f"/operations/{pk}").status_code == 404
        part = customer_client.get(f"/operations/{pk}/now")
        assert (part.status_code, part["HX-Reswap"], part.content) == (286, "none", b"")


def test_an_operator_sees_every_operation(operator_client: Client) -> None:
    found = purge(actor=SYSTEM, organisation=make_organisation("globex"))
    assert "The purge of globex is done" in seen(operator_client, f"/operations/{found.pk}")


def test_who_may_only_read_purges_nothing(customer_client: Client) -> None:
    join(make_organisation("acme", "chat"), role="viewer")
    assert "You may not purge" in seen(customer_client, f"{CHAT}/purge")
    assert customer_client.post(f"{CHAT}/purge", {"confirm": "chat"}).status_code == 403
    assert chat().epoch == 1


def test_in_a_suspended_organisation_nothing_is_changed(customer_client: Client, managed: Organisation) -> None:
    organisation_update(actor=SYSTEM, organisation=managed, expected=None, state="suspended")
    for path in (CHAT, f"{CHAT}/edit", f"{CHAT}/pins", f"{CHAT}/purge"):
        page = customer_client.get(path)
        assert "suspended: " in words(page)
        main = page.content.decode().partition("<main")[2]
        assert main
        assert 'type="submit" class="btn btn--' not in main
    assert customer_client.post(f"{CHAT}/purge", {"confirm": "chat"}).status_code == 403
    assert pinned(customer_client).status_code == 403
    assert chat().epoch == 1


def test_only_admins_purge_a_whole_organisation(customer_client: Client) -> None:
    acme = join(make_organisation("acme", "chat"), role="editor").organisation
    assert customer_client.get("/orgs/acme/purge").status_code == 403
    Member.objects.update(role="admin")
    resides(chat(), 1 << 20)
    told = seen(customer_client, "/orgs/acme/purge")
    assert "All 2 namespaces of acme would be purged They hold 1.0 MiB in all caches now" in told
    assert customer_client.post("/orgs/acme/purge", {"confirm": "chat"}).status_code == 422
    answer = customer_client.post("/orgs/acme/purge", {"confirm": "acme"})
    assert "The purge of acme is done" in seen(customer_client, answer["Location"])
    assert set(Namespace.objects.filter(organisation=acme).values_list("epoch", flat=True)) == {2}


@pytest.mark.parametrize("path", ["", "/edit", "/pins", "/purge", "/now", "/evictions"])
def test_a_stranger_finds_nothing_of_it(customer_client: Client, path: str) -> None:
    join(make_organisation("globex"), role="admin")
    make_organisation("acme", "chat")
    assert customer_client.get(f"{CHAT}{path}").status_code == 404
    assert customer_client.get(f"/orgs/globex/namespaces/chat{path}").status_code == 404


def test_forms_of_another_site_change_nothing(acme: Organisation) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(email="someone@acme.example"))
    for path, told in ((f"{CHAT}/purge", {"confirm": "chat"}), (f"{CHAT}/pins", {"name": "x"})):
        assert strict.post(path, told).status_code == 403
    assert chat().epoch == 1


def test_numbers_before_the_window_are_compared_where_they_are_whole(
    customer_client: Client, acme: Organisation
) -> None:
    now = timezone.now()
    store(
        Counted(chat(), now - timedelta(hours=49), counts(1, 100, 0)),
        Counted(chat(), now - timedelta(hours=30), counts(30, 1000, 500)),
        Counted(chat(), now - timedelta(hours=1), counts(30, 1000, 700)),
    )
    assert "Hit rate 70.0 %, up 20.0 points" in seen(customer_client, CHAT)
