"""Keys and members in the browser: made, shown once, changed and ended, by those who may and by nobody else."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.access import actor_for_token
from tenants.actor import SYSTEM
from tenants.errors import InvalidToken
from tenants.limits import Limits
from tenants.models import ApiKey, AuditRecord, Member, Organisation, User
from tenants.services.keys import key_create
from tenants.services.members import member_invite
from tenants.services.organisations import limits_put
from tests.database.factories import make_agent, make_user
from tests.usage.rows import store_by_key
from tests.web.api import make_key, make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
KEYS, MEMBERS = "/orgs/acme/keys", "/orgs/acme/members"
NOWHERE = str(uuid4())


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


@pytest.fixture
def admin(customer_client: Client, acme: Organisation) -> Client:
    join(acme)
    return customer_client


def get(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return words(answer)


def do(client: Client, path: str, what: str, **told: Any) -> HttpResponse:
    return client.post(path, {"do": what, **told})  # type: ignore[return-value]


def make(client: Client, **told: Any) -> HttpResponse:
    return do(client, KEYS, "create", **{"name": "production", "scopes": ["infer"], "once": str(uuid4()), **told})


def secret_in(answer: HttpResponse) -> str:
    (found,) = re.findall(r'<input id="secret"[^>]* value="([^"]+)"', answer.content.decode())
    return str(found)


def works(secret: str) -> bool:
    try:
        actor_for_token(secret, now=timezone.now(), address="", request_id="")
    except InvalidToken:
        return False
    return True


# Keys


def test_a_new_key_is_shown_once_with_what_to_do_with_it(admin: Client, acme: Organisation) -> None:
    answer = make(admin)
    assert (answer.status_code, answer["Cache-Control"]) == (
        201,
        "max-age=0, no-cache, no-store, must-revalidate, private",
    )
    secret = secret_in(answer)
    assert works(secret)
    assert f"export OPENAI_API_KEY={secret}" in words(answer)
    key = ApiKey.objects.get()
    assert (key.name, key.scopes, key.namespace_ids, key.created_by) == (
        "production",
        ["infer"],
        None,
        "someone@acme.example",
    )
    again = admin.get(KEYS).content.decode()
    assert secret not in again
    assert key.prefix in again


def test_the_snippet_names_the_gateway_that_has_joined(operator_client: Client, acme: Organisation) -> None:
    assert "https://your-gateway/v1" in words(make(operator_client))
    agent = make_agent("gateway-1", kind="gateway", address="http://127.0.0.1:8080")
    type(agent).objects.filter(pk=agent.pk).update(last_seen_at=timezone.now())
    assert "OPENAI_BASE_URL=http://127.0.0.1:8080/v1" in words(make(operator_client))
    assert "LUMINET_URL=http://testserver" in words(make(operator_client, scopes=["policy:read"]))


def test_a_form_that_is_sent_twice_makes_one_key(admin: Client, acme: Organisation) -> None:
    once = str(uuid4())
    first, second = make(admin, once=once), make(admin, once=once)
    key = ApiKey.objects.get()
    assert (first.status_code, second.status_code) == (201, 422)
    assert secret_in(first) not in second.content.decode()
    assert f"The key production ({key.prefix}…) was made with this form already" in words(second)
    assert "revoke what was made and send this form again" in words(second)
    other = make(admin, once=once, name="another")
    assert other.status_code == 422
    assert "A key was made with this form already. Send it again to make another one." in words(other)
    assert ApiKey.objects.count() == 1


def test_a_key_is_bound_to_the_namespaces_that_are_ticked_and_ends_when_its_last_day_is_over(
    admin: Client, acme: Organisation
) -> None:
    day = (timezone.now() + timedelta(days=5)).astimezone(UTC).date()
    assert make(admin, namespaces=["chat"], ends=day.isoformat()).status_code == 201
    key = ApiKey.objects.get()
    assert key.namespace_ids == [acme.namespaces.get(slug="chat").pk]
    assert key.expires_at == datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    page = get(admin, KEYS)
    assert "production" in page
    assert "ends in 5 days" in page


def test_of_many_namespaces_the_slugs_are_typed(admin: Client, acme: Organisation) -> None:
    template = acme.namespaces.get(slug="chat")
    type(template).objects.bulk_create(
        [type(template)(organisation=acme, group=template.group, slug=f"ns-{number:02}") for number in range(30)]
    )
    assert make(admin, namespaces="ns-03, chat ns-04").status_code == 201
    assert len(ApiKey.objects.get().namespace_ids or ()) == 3
    wrong = make(admin, namespaces=f"ns-99 {SCRIPT}")
    assert wrong.status_code == 422
    assert "There is no namespace ns-99." in words(wrong)
    assert SCRIPT not in wrong.content.decode()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "x" * 150}, "Has 150 characters, 100 is the most."),
        ({"scopes": []}, "This field is required."),
        ({"scopes": ["everything"]}, "everything is not one of the available choices."),
        ({"scopes": ["admin"], "namespaces": ["chat"]}, "A key bound to namespaces cannot have admin"),
        ({"namespaces": ["nowhere"]}, "nowhere is not one of the available choices."),
        ({"ends": "soon"}, "Enter a valid date."),
        ({"ends": "2020-01-01"}, "has passed."),
        ({"ends": "9999-12-31"}, "That is the last day there is."),
        ({"ends": "3000-01-01"}, "Is more than 100 years ahead"),
        ({"once": "x"}, "This form came back incomplete: reload the page and send it again."),
    ],
)
def test_what_is_wrong_with_a_new_key_is_said_and_what_was_typed_stays(
    admin: Client, told: dict[str, Any], said: str
) -> None:
    answer = make(admin, **{"name": f"mine {SCRIPT}", **told})
    assert answer.status_code == 422
    assert said in words(answer)
    page = answer.content.decode()
    assert SCRIPT not in page
    assert told.get("name", "mine &lt;script&gt;") in page
    assert not ApiKey.objects.exists()


def test_no_more_keys_than_the_limit(admin: Client, acme: Organisation) -> None:
    limits_put(actor=SYSTEM, organisation=acme, limits=Limits(max_keys=0), expected=None)
    answer = make(admin)
    assert "max_keys: the limit is 0; ask your operator to raise it." in words(answer)


def test_revoking_asks_for_the_keys_name_and_ends_it_at_once(admin: Client, acme: Organisation) -> None:
    secret = secret_in(make(admin))
    key = ApiKey.objects.get()
    page = get(admin, KEYS, revoke=str(key.pk))
    assert "Revoking production stops whatever uses it" in page
    wrong = do(admin, KEYS, "revoke", key=key.pk, **{"end-typed": "else"})
    assert wrong.status_code == 422
    assert "“else” is not production. Nothing has happened." in words(wrong)
    assert works(secret)
    assert do(admin, KEYS, "revoke", key=key.pk, **{"end-typed": "production"})["Location"] == KEYS
    assert not works(secret)
    assert "is revoked. Gateways refuse it within moments." in get(admin, KEYS)
    assert AuditRecord.objects.latest("pk").verb == "key.revoke"


def test_another_organisations_key_cannot_be_reached(admin: Client, acme: Organisation) -> None:
    make_key(make_organisation("globex"))
    foreign = str(ApiKey.objects.get().pk)
    for unknown in (foreign, NOWHERE, "x", ""):
        assert admin.get(KEYS, {"revoke": unknown}).status_code == 404
        assert do(admin, KEYS, "revoke", key=unknown, **{"end-typed": "test"}).status_code == 404
    assert ApiKey.objects.get().revoked_at is None


@pytest.mark.parametrize("role", ["viewer", "editor"])
@pytest.mark.parametrize("path", [KEYS, MEMBERS, "/orgs/acme/audit"])
def test_keys_members_and_trail_are_for_admins(
    customer_client: Client, acme: Organisation, role: str, path: str
) -> None:
    join(acme, role)
    answer = customer_client.get(path)
    assert answer.status_code == 403
    assert b"You may not do this" in answer.content
    assert make(customer_client).status_code == 403
    assert do(customer_client, MEMBERS, "invite", email="x@acme.example", role="admin").status_code == 403
    assert not ApiKey.objects.exists()


def test_keys_are_paged_searched_and_asked_for_together(admin: Client, acme: Organisation) -> None:
    chat = acme.namespaces.get(slug="chat")

    def more(count: int) -> None:
        for number in range(count):
            key_create(actor=SYSTEM, organisation=acme, name=f"key {number}", scopes=["infer"], namespaces=[chat])

    more(1)
    with CaptureQueriesContext(connection) as few:
        get(admin, KEYS)
    more(55)
    with CaptureQueriesContext(connection) as many:
        page = get(admin, KEYS)
    assert len(few) == len(many)
    assert "1 to 50 of 56" in page
    assert "1 key fits “key 54”" in get(admin, KEYS, find="key 54")


def test_each_key_says_what_it_asked_and_when_it_was_last_used(admin: Client, acme: Organisation) -> None:
    chat, now = acme.namespaces.get(slug="chat"), timezone.now()
    asking, idle, reading = (
        key_create(actor=SYSTEM, organisation=acme, name=name, scopes=[scope])[0]
        for name, scope in (("asking", "infer"), ("idle", "infer"), ("reading", "stats:read"))
    )
    globex = make_organisation("globex")
    theirs = key_create(actor=SYSTEM, organisation=globex, name="theirs", scopes=["infer"])[0]
    store_by_key(asking, chat, now - timedelta(hours=30), (9, 900, 0, 9))
    store_by_key(asking, chat, now - timedelta(hours=2), (4, 400, 300, 9))
    store_by_key(theirs, globex.namespaces.get(slug="default"), now, (7, 700, 0, 9))
    ApiKey.objects.filter(pk__in=[asking.pk, reading.pk]).update(last_used_at=now - timedelta(hours=5))
    page = get(admin, KEYS)
    said = "works infer all, later ones too 4 requests 75.0 % from the cache"
    when = f"{(now - timedelta(hours=2)).astimezone(UTC):%b %Y, %H:%M} UTC at a gateway"
    assert re.search(rf"asking {asking.prefix}… {said} \d+ {when}", page)
    assert re.search(rf"idle {idle.prefix}… works infer all, later ones too 0 requests not known to be used", page)
    assert re.search(rf"reading {reading.prefix}… .{{,80}} may not infer .{{,40}} UTC at the REST API", page)
    assert "theirs" not in page
    assert "7 requests" not in page
    ending = get(admin, KEYS, revoke=str(asking.pk))
    assert re.search(r"Last used .{,40} UTC , at a gateway Asked in 24 h 4 requests, 75\.0 % from the cache", ending)


def test_numbers_of_many_keys_cost_as_many_questions_as_of_one(admin: Client, acme: Organisation) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            get(admin, KEYS)
        return len(queries)

    key_create(actor=SYSTEM, organisation=acme, name="first", scopes=["infer"])
    before = asked()
    for number in range(9):
        key_create(actor=SYSTEM, organisation=acme, name=f"key-{number}", scopes=["infer"])
    assert asked() == before


# Members


def test_an_invitation_is_shown_once_and_works(admin: Client, acme: Organisation) -> None:
    answer = do(admin, MEMBERS, "invite", email="Kim@Acme.example", role="editor")
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    link = secret_in(answer)
    assert "/invitation/" in link
    assert Client().get(link[link.index("/invitation/") :]).status_code == 200
    page = admin.get(MEMBERS)
    assert link not in page.content.decode()
    assert "kim@acme.example invited editor" in words(page)
    assert "1 of 2 members has joined" in words(page)


@pytest.mark.parametrize(
    ("email", "role", "said"),
    [
        ("", "viewer", "This field is required."),
        (SCRIPT, "viewer", "is not an e-mail address."),
        ("x" * 290 + "@acme.example", "viewer", "Ensure this value has at most 300 characters"),
        ("kim@acme.example", "owner", "owner is not one of the available choices."),
        ("someone@acme.example", "viewer", "is a member of this organisation already."),
    ],
)
def test_what_is_wrong_with_an_invitation_stands_beside_its_field(
    admin: Client, email: str, role: str, said: str
) -> None:
    answer = do(admin, MEMBERS, "invite", email=email, role=role)
    assert answer.status_code == 422
    assert said in words(answer)
    assert SCRIPT not in answer.content.decode()
    assert Member.objects.count() == 1


def test_an_admin_changes_a_role(admin: Client, acme: Organisation) -> None:
    member, _ = member_invite(actor=SYSTEM, organisation=acme, email="kim@acme.example", role="viewer")
    assert "kim@acme.example may read numbers and policies" in get(admin, MEMBERS, member=str(member.pk))
    assert do(admin, MEMBERS, "role", member=member.pk, **{"role-role": "admin"})["Location"] == MEMBERS
    member.refresh_from_db()
    assert member.role == "admin"
    assert do(admin, MEMBERS, "role", member=member.pk, **{"role-role": "owner"}).status_code == 422


def test_the_last_admin_neither_steps_down_nor_leaves(admin: Client, acme: Organisation) -> None:
    me = Member.objects.get()
    for answer in (
        do(admin, MEMBERS, "role", member=me.pk, **{"role-role": "viewer"}),
        do(admin, MEMBERS, "remove", member=me.pk, **{"end-typed": me.email}),
    ):
        assert answer.status_code == 422
        assert "his is the organisation's last admin; make somebody else one first." in words(answer)
    assert Member.objects.get().role == "admin"


def test_who_takes_their_own_role_away_is_led_to_where_they_still_may_be(admin: Client, acme: Organisation) -> None:
    make_user(email="kim@acme.example")
    join(acme, "admin", "kim@acme.example")
    me = Member.objects.get(email="someone@acme.example")
    assert do(admin, MEMBERS, "role", member=me.pk, **{"role-role": "viewer"})["Location"] == "/orgs/acme"
    assert admin.get(MEMBERS).status_code == 403  # a role that was taken away holds from the next request on


def test_who_removes_themselves_is_led_home(admin: Client, acme: Organisation) -> None:
    make_user(email="kim@acme.example")
    join(acme, "admin", "kim@acme.example")
    me = Member.objects.get(email="someone@acme.example")
    assert do(admin, MEMBERS, "remove", member=me.pk, **{"end-typed": me.email})["Location"] == "/"
    assert admin.get("/orgs/acme").status_code == 404


def test_removing_asks_for_the_address(admin: Client, acme: Organisation) -> None:
    member, _ = member_invite(actor=SYSTEM, organisation=acme, email="kim@acme.example", role="viewer")
    wrong = do(admin, MEMBERS, "remove", member=member.pk, **{"end-typed": "kim"})
    assert wrong.status_code == 422
    assert "“kim” is not kim@acme.example. Nothing has happened." in words(wrong)
    assert do(admin, MEMBERS, "remove", member=member.pk, **{"end-typed": "kim@acme.example"})["Location"] == MEMBERS
    assert Member.objects.filter(pk=member.pk).count() == 0


def test_a_new_link_ends_the_earlier_one(admin: Client, acme: Organisation) -> None:
    first = secret_in(do(admin, MEMBERS, "invite", email="kim@acme.example", role="viewer"))
    member = Member.objects.get(email="kim@acme.example")
    second = secret_in(do(admin, MEMBERS, "link", member=member.pk))
    assert Client().get(first[first.index("/invitation/") :]).status_code == 404
    assert Client().get(second[second.index("/invitation/") :]).status_code == 200


def test_a_link_to_a_new_password_is_the_operators_to_make(
    admin: Client, operator_client: Client, acme: Organisation
) -> None:
    me = Member.objects.get()
    assert do(admin, MEMBERS, "link", member=me.pk).status_code == 403
    assert "/reset/" in secret_in(do(operator_client, MEMBERS, "link", member=me.pk))
    assert User.objects.filter(email=me.email).exists()


def test_another_organisations_member_cannot_be_reached(admin: Client) -> None:
    other = make_organisation("globex")
    foreign, _ = member_invite(actor=SYSTEM, organisation=other, email="kim@globex.example", role="viewer")
    for unknown in (str(foreign.pk), NOWHERE, "x", ""):
        assert admin.get(MEMBERS, {"member": unknown}).status_code == 404
        for what in ("role", "link", "remove"):
            assert do(admin, MEMBERS, what, member=unknown).status_code == 404
    assert do(admin, MEMBERS, "promote", member=NOWHERE).status_code == 404


def test_members_are_paged_and_asked_for_together(operator_client: Client, acme: Organisation) -> None:
    assert "Nobody belongs to this organisation yet" in get(operator_client, MEMBERS)
    people = [Member(organisation=acme, email=f"p{number:02}@acme.example", role="viewer") for number in range(60)]
    people[0].save()
    with CaptureQueriesContext(connection) as few:
        assert "1 member invited, not joined yet" in get(operator_client, MEMBERS)
    Member.objects.bulk_create(people[1:])
    with CaptureQueriesContext(connection) as many:
        page = get(operator_client, MEMBERS)
    assert len(few) == len(many)
    assert "60 members invited, none joined yet" in page
    assert "p49@" in page
    assert "p50@" not in page
    assert "1 member fits “p59”" in get(operator_client, MEMBERS, find="p59")
