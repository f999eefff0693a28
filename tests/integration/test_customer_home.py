"""What a customer finds after signing in: their organisations, and what is in force in each namespace."""

import html
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.dashboard.home.customer import TILES_AT_MOST
from tenants.access import MANAGE, READ, actor_for_member, memberships_of, organisation_for
from tenants.actor import SYSTEM, ActorKind, Scope
from tenants.errors import MissingScope, NotFound
from tenants.homes import NAMESPACES_AT_MOST, homes_of
from tenants.levels import FLEET, Place
from tenants.models import Member, Namespace, Organisation, User
from tenants.policy import Policy
from tenants.services.members import member_invite
from tenants.services.namespaces import namespace_delete, namespaces_create
from tenants.services.organisations import organisation_delete, organisation_update
from tenants.services.policies import policy_publish
from tests.database.factories import make_user
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db


def joined(slug: str = "acme", *namespaces: str, role: str = "editor") -> Organisation:
    """An organisation whose member is the person the customer_client is signed in as."""
    organisation = make_organisation(slug, *namespaces)
    member = Member(organisation=organisation, email="someone@acme.example", role=role)
    member.user = User.objects.get(email="someone@acme.example")
    member.joined_at = organisation.created_at
    member.save()
    return organisation


def publish(organisation: Organisation | None, said: dict[str, Any], slug: str | None = None) -> None:
    namespace = Namespace.objects.get(organisation=organisation, slug=slug) if slug else None
    place = FLEET if organisation is None else Place(organisation, namespace)
    policy_publish(actor=SYSTEM, place=place, policy=Policy.model_validate(said), expected=None)


def seen(client: Client) -> str:
    """The page's words, in their order."""
    page = client.get("/").content.decode()
    main = page[page.index("<main") : page.index("</main>")]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


NOBODY = "your account is not part of an organisation"


def test_who_belongs_to_no_organisation_is_told_so(customer_client: Client) -> None:
    assert NOBODY in seen(customer_client)


def test_an_invitation_alone_does_not_show_the_organisation(customer_client: Client) -> None:
    member_invite(actor=SYSTEM, organisation=make_organisation(), email="someone@acme.example", role="admin")
    assert NOBODY in seen(customer_client)


def test_a_member_sees_the_organisation_the_role_and_what_is_in_force(customer_client: Client) -> None:
    organisation = joined("acme", "support-bot")
    publish(organisation, {"ttl_seconds": 600})
    publish(organisation, {"kv_dtype": "int4", "request_kv_dtypes": []}, "support-bot")
    words = seen(customer_client)
    assert NOBODY not in words
    assert "Acme has 2 namespaces You are an editor: you may read everything, and change policies" in words
    row = "10 min sliding after last use, at most 24 h in all from the organisation"
    own = "this namespace's own"
    assert re.search(rf"default {row} Change .* fp8 fleet default int4 fleet default", words)
    assert re.search(rf"support-bot {row} Change .* int4 {own} nothing else {own}", words)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"ttl_seconds": 5400, "max_age_seconds": None}, "1 h 30 min sliding after last use, without a cap on age"),
        ({"ttl_seconds": 3600, "ttl_mode": "absolute"}, "1 h absolute counted from creation"),
        ({"ttl_seconds": 604_800, "max_age_seconds": 691_200}, "7 d sliding after last use, at most 8 d in all"),
        ({"prefix_caching": False}, "off nothing is kept"),
    ],
)
def test_how_long_blocks_live_is_said_in_words(customer_client: Client, said: dict[str, Any], words: str) -> None:
    publish(joined(), said)
    assert f"{words} from the organisation" in seen(customer_client)


def test_values_from_the_fleet_of_two_levels_and_of_single_models_are_told(customer_client: Client) -> None:
    organisation = joined()
    publish(None, {"kv_dtype": "bf16"})
    publish(organisation, {"ttl_mode": "absolute"})
    publish(organisation, {"ttl_seconds": 60, "models": {"tiny": {"ttl_seconds": 30}}}, "default")
    words = seen(customer_client)
    assert (
        "other values for 1 model 1 min absolute counted from creation this namespace's own, from the organisation"
        in words
    )
    assert "bf16 fleet default" in words


def test_a_suspended_organisation_is_stated_plainly(customer_client: Client) -> None:
    organisation_update(actor=SYSTEM, organisation=joined(), expected=None, state="suspended")
    words = seen(customer_client)
    assert "Acme is suspended What stands here can be read, not changed, until your operator lifts" in words
    assert "default 5 min sliding" in words


def test_a_deleted_organisation_is_as_if_one_had_never_joined(customer_client: Client) -> None:
    organisation_delete(actor=SYSTEM, organisation=joined(), expected=None)
    words = seen(customer_client)
    assert NOBODY in words
    assert "Acme" not in words


def test_a_deleted_namespace_is_not_listed(customer_client: Client) -> None:
    organisation = joined("acme", "old")
    namespace = Namespace.objects.select_related("organisation").get(slug="old")
    namespace_delete(actor=SYSTEM, namespace=namespace, expected=None)
    words = seen(customer_client)
    assert "Acme has 1 namespace You" in words
    assert organisation.namespaces.count() == 2


def test_several_organisations_stand_one_below_the_other(customer_client: Client) -> None:
    joined("zeta", role="viewer")
    organisation_update(actor=SYSTEM, organisation=joined("beta", role="admin"), expected=None, state="suspended")
    words = seen(customer_client)
    assert "You belong to 2 organisations Beta is suspended." in words
    assert words.index("Beta suspended You are an admin") < words.index("Zeta You are a viewer")


def test_nothing_of_anybody_else_is_shown(customer_client: Client) -> None:
    joined("acme")
    make_organisation("globex", "their-secret-project")
    assert "globex" not in seen(customer_client).lower()
    assert "their-secret-project" not in seen(customer_client)


def test_names_are_shown_as_text(customer_client: Client) -> None:
    organisation_update(actor=SYSTEM, organisation=joined(), expected=None, name="<b>Acme</b>")
    assert "&lt;b&gt;Acme&lt;/b&gt; has 1 namespace" in customer_client.get("/").content.decode()


def test_a_long_list_is_cut_and_says_how_much_is_left(customer_client: Client) -> None:
    organisation = joined()
    wanted = [(f"n{number:03}", "", None) for number in range(NAMESPACES_AT_MOST + 9)]
    namespaces_create(actor=SYSTEM, organisation=organisation, wanted=wanted)
    words = seen(customer_client)
    assert f"Acme has {NAMESPACES_AT_MOST + 10} namespaces" in words
    assert "And 10 more: all namespaces of " in words
    assert customer_client.get("/").content.count(b'scope="row"') == NAMESPACES_AT_MOST


def test_the_home_asks_no_more_the_more_namespaces_there_are(customer_client: Client) -> None:
    """Besides session, user, memberships (twice: the frame lists them), the fleet's policy, namespaces and open
    rollouts: the numbers of each organisation."""
    asked: list[int] = []
    for slug in ("acme", "globex", "initech", "umbrella"):
        joined(slug, *(f"n{number}" for number in range(10 * len(asked))))
        asked.append(queries_of(customer_client))
    each = asked[2] - asked[1]
    assert asked[1:] == [7 + 2 * each, 7 + 3 * each, 7 + 4 * each]


def test_the_home_of_one_organisation_asks_no_more_the_more_namespaces_it_has(customer_client: Client) -> None:
    """It has all of its numbers there, and not the tile alone."""
    organisation = joined("acme", "chat")
    namespaces = Namespace.objects.filter(organisation=organisation)
    store(*(Counted(one, timezone.now(), counts(40, 1_000, 712)) for one in namespaces))
    publish(organisation, {"ttl_seconds": 600}, "chat")
    before = queries_of(customer_client)
    namespaces_create(actor=SYSTEM, organisation=organisation, wanted=[(f"n{one}", "", None) for one in range(30)])
    more = namespaces.exclude(slug__in=["default", "chat"])
    store(*(Counted(one, timezone.now(), counts(40, 1_000, 712)) for one in more))
    for one in more[:6]:
        publish(organisation, {"ttl_seconds": 900}, one.slug)
    assert queries_of(customer_client) == before


def test_of_more_than_ten_organisations_the_first_ten_are_counted(customer_client: Client) -> None:
    asked = []
    for number in range(TILES_AT_MOST + 2):
        joined(f"acme{number:02}")
        asked.append(queries_of(customer_client))
    assert asked[-3] == asked[-2] == asked[-1]
    page = customer_client.get("/").content.decode()
    assert page.count("data-tile=") == TILES_AT_MOST
    assert "GET /api/v1/orgs/acme11/stats" in seen(customer_client)
    (paths,) = re.findall(r'data-live="([^"]*)"', page)
    assert paths.split() == [f"/ws/live/orgs/acme{number:02}" for number in range(TILES_AT_MOST)]


def test_the_headline_says_what_was_counted(customer_client: Client) -> None:
    chat = joined("acme").namespaces.get()
    store(Counted(chat, timezone.now(), counts(40, 1_000, 712)))
    page = customer_client.get("/").content.decode()
    assert "Hit rate 71.2 % Acme has 1 namespace. You are an editor" in seen(customer_client)
    assert "<title>Hit rate 71.2 % · Luminet</title>" in page
    assert 'data-fact="/ws/live/orgs/acme"' in page


def queries_of(client: Client) -> int:
    with CaptureQueriesContext(connection) as asked:
        client.get("/")
    return len(asked)


def test_a_member_acts_with_the_scopes_of_the_role_in_that_organisation_alone(customer_client: Client) -> None:
    joined("acme", role="viewer")
    make_organisation("globex")
    member = memberships_of(User.objects.get()).get()
    actor = actor_for_member(member, address="192.0.2.1", request_id="r1")
    assert (actor.kind, actor.is_operator, actor.name) == (ActorKind.MEMBER, False, "someone@acme.example")
    assert actor.scopes == {Scope.STATS_READ, Scope.POLICY_READ}
    assert organisation_for(actor, "acme", READ).slug == "acme"
    with pytest.raises(MissingScope):
        organisation_for(actor, "acme", MANAGE)
    with pytest.raises(NotFound):
        organisation_for(actor, "globex", READ)


def test_each_home_holds_its_own_namespaces() -> None:
    make_user()
    joined("acme", "a1")
    joined("globex", "g1", "g2")
    found = [
        (home.organisation.slug, [one.namespace.slug for one in home.namespaces])
        for home in homes_of(User.objects.get())
    ]
    assert found == [("acme", ["a1", "default"]), ("globex", ["default", "g1", "g2"])]
