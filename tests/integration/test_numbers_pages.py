"""The numbers as people read them: operators of the fleet, customers of their organisation, each of nothing else."""

import csv
import html
import io
import json
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.models import Alert
from controlplane.analytics.models import Price, ReuseCurve
from controlplane.analytics.movers import movement, recent
from controlplane.analytics.selectors import database_now
from controlplane.analytics.stats import live_message, live_message_of, scope_of_group, stats_answer
from controlplane.fleet.in_force import fields_in_force
from controlplane.live.listeners import organisation_group
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place, level_of
from tenants.models import Member, Namespace, Organisation, PolicyRevision, User
from tenants.policy import Policy
from tenants.services.keys import key_create, key_revoke
from tenants.services.namespaces import namespace_delete, namespaces_create
from tenants.services.organisations import organisation_delete, organisation_update
from tenants.services.policies import policy_publish
from tests.database.factories import make_agent
from tests.usage.rows import Counted, counts, store, store_by_key, ttft
from tests.web.api import Api, make_key, make_organisation, said
from tests.web.demonstration import demonstration

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
HOSTILE = "<script>alert(1)</script>"


def join(client: Client, organisation: Organisation, role: str = "viewer") -> Organisation:
    user = User.objects.get(email="someone@acme.example")
    Member.objects.create(organisation=organisation, email=user.email, role=role, user=user, joined_at=timezone.now())
    return organisation


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    return join(customer_client, make_organisation("acme", "chat"))


def default(organisation: Organisation) -> Namespace:
    return Namespace.objects.select_related("organisation").get(organisation=organisation, slug="default")


def publish(
    organisation: Organisation | None, said: dict[str, Any], note: str = "", *, slug: str | None = None
) -> None:
    namespace = Namespace.objects.get(organisation=organisation, slug=slug) if slug else None
    place = FLEET if organisation is None else Place(organisation, namespace)
    policy_publish(actor=SYSTEM, place=place, policy=Policy.model_validate(said), expected=None, note=note)


def api(organisation: Organisation) -> Api:
    return Api(make_key(organisation), Client())


def words_of(page: str) -> str:
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


def seen(client: Client, address: str = "/") -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.status_code
    page = answer.content.decode()
    return words_of(page[page.index("<main") : page.index("</main>")])


def queries_of(client: Client, address: str) -> int:
    fields_in_force()  # they are kept until something is changed
    with CaptureQueriesContext(connection) as asked:
        assert client.get(address).status_code == 200
    return len(asked)


def asked_for(organisation: Organisation, **more: int) -> None:
    """Forty hits and forty misses of one length, minutes ago."""
    times = ttft(40, 40, prompt=100, cached=80) | ttft(240, 40, prompt=100)
    told = counts(80, 8_000, 3_200, missed_cold=4_000, missed_expired=500, missed_tail=300, **more)
    store(Counted(default(organisation), timezone.now() - timedelta(minutes=2), told, times))


# Customers


def test_a_customers_home_says_what_the_cache_was_worth(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    words = seen(customer_client)
    assert "3,200 of 8,000 tokens, 80 requests" in words
    assert re.search(
        r"First token, hit against miss (39|40|41) against 2[34]\d ms p50, prompts of like length, [23] min", words
    )
    assert re.search(r"Tokens saved 3,200 of 8,000 prompt tokens in 80 requests, [23] min of 24 h", words)
    assert re.search(r"Waiting saved [78]\.\d s for first tokens, together", words)
    assert "Served from cache 3,200 40.0 % New to the cache 4,000 50.0 % Expired 500" in words
    assert "60.0 % of prompt tokens were not served from cache, 83.3 % of those for one reason: they were new" in words


def test_each_number_says_how_it_is_counted_and_which_call_answers_it(
    customer_client: Client, acme: Organisation
) -> None:
    words = seen(customer_client)
    assert words.count("How it is counted") == 5
    assert words.count("GET /api/v1/orgs/acme/stats?window=24h answers it as") == 8
    for field in ("hit_ratio", "ttft_ms.hit_p50", "saved.tokens", "saved.seconds", "saved.money", "by_model", "by_key"):
        assert field in words


def test_the_fields_that_the_page_names_are_in_the_answer(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    answer = said(api(acme).get("/orgs/acme/stats?window=24h"))
    page = customer_client.get("/").content.decode()
    for named in re.findall(r"answers it as <code>([^<]+)</code>", page):
        for path in named.split(", "):
            found: Any = answer
            for part in path.split("."):
                found = found[part]


@pytest.mark.parametrize(
    ("is_example", "words"),
    [
        (True, "Money saved EUR 0.80 at example prices: nobody asks them"),
        (False, "Money saved EUR 0.80 at the price list"),
    ],
)
def test_money_says_by_which_prices_it_is(
    customer_client: Client, acme: Organisation, is_example: bool, words: str
) -> None:
    price = {"input": Decimal(500), "cached_input": Decimal(250), "output": Decimal(900), "is_example": is_example}
    Price.objects.create(model="", valid_from="2020-01-01", currency="EUR", **price)
    asked_for(acme)
    assert words in seen(customer_client)


def test_without_prices_no_money_is_named(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    assert "Money saved not known no price is set" in seen(customer_client)


def test_too_few_requests_are_compared_with_nothing(customer_client: Client, acme: Organisation) -> None:
    store(Counted(default(acme), timezone.now(), counts(3, 300, 150)))
    words = seen(customer_client)
    assert "First token, hit against miss too few to compare" in words
    assert "Waiting saved too few to compare" in words
    assert "3 requests so far: too few to say a hit rate of 24 h" in words


def test_before_anything_was_asked_the_page_says_what_will_be_there(
    customer_client: Client, acme: Organisation
) -> None:
    words = seen(customer_client)
    assert "Acme has 2 namespaces" in words
    for begin in (
        "Nothing was asked in the last 24 h",
        "The curve begins with the first request",
        "No model was asked",
    ):
        assert begin in words
    assert "No policy changed in the last 24 h" in words


@pytest.mark.parametrize("window", ["1h", "24h", "7d", "30d"])
def test_a_window_is_picked_and_everything_but_the_tile_is_of_it(
    customer_client: Client, acme: Organisation, window: str
) -> None:
    store(Counted(default(acme), timezone.now(), counts(30, 3_000, 1_500)))
    store(Counted(default(acme), timezone.now() - timedelta(hours=5), counts(30, 3_000, 0)))
    page = customer_client.get(f"/?window={window}").content.decode()
    assert f'<a href="/?window={window}" aria-current="true">' in page
    words = words_of(page)
    assert (
        f"Tokens saved 1,500 of {'3,000 prompt tokens in 30' if window == '1h' else '6,000 prompt tokens in 60'}"
        in words
    )
    assert "1,500 of 6,000 tokens, 60 requests" in words, "the tile is of 24 h"
    assert f"stats?window={window}" in words


@pytest.mark.parametrize("window", ["", "2h", "24H", "<script>", "1h&window=", "9" * 5_000])
def test_a_window_that_is_none_is_24_hours(customer_client: Client, acme: Organisation, window: str) -> None:
    page = customer_client.get("/", {"window": window}).content.decode()
    assert 'window=24h" aria-current="true"' in page
    assert "<script>" not in page


def test_parts_of_the_whole_are_told_by_namespace_and_model(customer_client: Client, acme: Organisation) -> None:
    chat = Namespace.objects.get(organisation=acme, slug="chat")
    now = timezone.now()
    store(
        Counted(default(acme), now, counts(10, 1_000, 500)),
        Counted(chat, now, counts(30, 3_000, 300), model=HOSTILE),
    )
    words = seen(customer_client)
    assert "chat has 75 % of the prompt tokens of 2 namespaces" in words
    assert re.search(r"chat 10\.0 % 30 3,000 300 –? ?.*default 50\.0 % 10 1,000 500", words)
    assert f"{HOSTILE} 10.0 % 30 3,000 300" in words, "as text"
    page = customer_client.get("/").content.decode()
    assert HOSTILE not in page
    assert '<a id="of-chat" href="/orgs/acme/namespaces/chat">' in page


def test_parts_of_the_whole_are_told_by_key_with_what_no_key_is_known_of(
    customer_client: Client, acme: Organisation
) -> None:
    key = key_create(actor=SYSTEM, organisation=acme, name=HOSTILE, scopes=["infer"])[0]
    theirs = key_create(actor=SYSTEM, organisation=make_organisation("globex"), name="theirs", scopes=["infer"])[0]
    now = timezone.now()
    store(Counted(default(acme), now, counts(10, 1_000, 500)))
    store_by_key(key, default(acme), now, (6, 600, 450, 0))
    store_by_key(theirs, default(theirs.organisation), now, (6, 600, 450, 0))
    words = seen(customer_client)
    assert f"60 % of the prompt tokens came with {HOSTILE}, of 1 key that asked" in words
    assert f"{HOSTILE} {key.prefix}… 75.0 % 6 600 450 No key is known 12.5 % 4 400 50" in words
    assert "A request counts for the key it came with" in words
    assert "theirs" not in words
    assert HOSTILE not in customer_client.get("/").content.decode()
    assert HOSTILE in words_of(customer_client.get("/orgs/acme/analytics/now").content.decode())
    key_revoke(actor=SYSTEM, key=key)
    assert f"{HOSTILE} {key.prefix}…, revoked 75.0 %" in seen(customer_client)


def test_all_parts_are_there_as_csv(customer_client: Client, acme: Organisation) -> None:
    key = key_create(actor=SYSTEM, organisation=acme, name="=1+1", scopes=["infer"])[0]
    now = timezone.now()
    store(Counted(default(acme), now, counts(10, 1_000, 500)))
    store_by_key(key, default(acme), now, (10, 1_000, 500, 0))
    assert 'href="/orgs/acme/analytics-parts.csv?window=24h" download' in customer_client.get("/").content.decode()
    answer = customer_client.get("/orgs/acme/analytics-parts.csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["of"] for row in rows] == ["total", "namespace", "model", "key", "before"]
    assert (rows[3]["name"].lstrip("'"), rows[3]["requests"]) == (f"=1+1 ({key.prefix}…)", "10")
    assert not rows[3]["name"].startswith("="), "no table makes a formula of it"


def test_a_deleted_namespace_keeps_its_numbers_and_has_no_page(customer_client: Client, acme: Organisation) -> None:
    chat = Namespace.objects.select_related("organisation").get(organisation=acme, slug="chat")
    store(Counted(chat, timezone.now(), counts(30, 3_000, 300)))
    namespace_delete(actor=SYSTEM, namespace=chat, expected=None)
    page = customer_client.get("/").content.decode()
    assert "chat deleted 10.0 %" in words_of(page)
    assert 'href="/orgs/acme/namespaces/chat"' not in page


# Policy revisions


def test_a_revision_is_marked_with_old_and_new_value_when_and_why(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    publish(acme, {"ttl_seconds": 600}, "Chats pause longer")
    publish(acme, {"ttl_seconds": 600, "kv_dtype": "int4"}, HOSTILE, slug="chat")
    page = customer_client.get("/").content.decode()
    words = words_of(page)
    assert "2 policy changes in the last 24 h" in words
    assert re.search(r"Revision 1 all namespaces .* UTC TTL: 5 min → 10 min Chats pause longer", words)
    assert re.search(rf"Revision 1 chat .* KV format: fp8 → int4 {re.escape(HOSTILE)} not predicted", words)
    assert HOSTILE not in page
    (told,) = re.findall(r'data-told="([^"]*)"', page)
    assert [one["label"] for one in json.loads(html.unescape(told))["marks"]] == ["2 changes"]


def test_a_fleets_revision_is_told_where_it_changes_something_and_its_note_to_operators_alone(
    customer_client: Client, operator_client: Client, acme: Organisation
) -> None:
    publish(None, {"kv_dtype": "int8"}, "Globex asked for it")
    words = seen(customer_client)
    assert re.search(r"Revision 1 the fleet’s default .* KV format: fp8 → int8 no note", words)
    assert "Globex" not in words
    assert "Globex asked for it" in seen(operator_client, "/orgs/acme/analytics")
    publish(acme, {"ttl_seconds": 900})
    publish(None, {"kv_dtype": "int8", "ttl_seconds": 60})
    assert "2 policy changes" in seen(customer_client), "their own time to live holds against the fleet's"


def test_what_another_organisation_publishes_is_not_there(customer_client: Client, acme: Organisation) -> None:
    publish(make_organisation("globex", "secret"), {"ttl_seconds": 60}, "of globex")
    assert "No policy changed in the last 24 h" in seen(customer_client)


def test_a_revision_before_the_window_is_not_marked(customer_client: Client, acme: Organisation) -> None:
    level, since = level_of(Place(acme)), timezone.now() - timedelta(hours=2)
    PolicyRevision.objects.create(
        level=level, number=1, policy={"ttl_seconds": 600}, author="x", author_is_operator=False, at=since
    )
    assert "No policy changed in the last 1 h" in seen(customer_client, "/?window=1h")
    assert "1 policy change in the last 24 h" in seen(customer_client)


def curve(namespace: Namespace, prompt_tokens: int = 50_000) -> None:
    lines = [{"ttl_mode": "sliding", "limit_share": None, "hit_ratios": [0.2, 0.5, 0.7], "resident_bytes": [1, 2, 3]}]
    told = {"prompt_tokens": prompt_tokens, "ttls": [60, 300, 600], "curves": lines}
    ReuseCurve.objects.create(agent="agent-1", namespace_id=namespace.pk, told=told, at=timezone.now())


def test_what_a_time_to_live_was_to_bring_is_said_with_its_error(customer_client: Client, acme: Organisation) -> None:
    curve(default(acme))
    publish(acme, {"ttl_seconds": 600})
    assert "50.0 % → 70.0 % ± 1.0 points" in seen(customer_client)
    publish(acme, {"ttl_seconds": 60}, slug="chat")
    assert "too little asked to say" in seen(customer_client), "chat has no curve"


def test_of_too_little_traffic_nothing_is_predicted(customer_client: Client, acme: Organisation) -> None:
    curve(default(acme), prompt_tokens=9_999)
    publish(acme, {"ttl_seconds": 600})
    assert "too little asked to say" in seen(customer_client)


# Who sees what


@pytest.mark.parametrize("role", ["viewer", "editor", "admin"])
def test_every_member_reads_the_numbers_at_their_own_address_too(customer_client: Client, role: str) -> None:
    asked_for(join(customer_client, make_organisation("acme"), role))
    words = seen(customer_client, "/orgs/acme/analytics")
    assert "Hit rate 40.0 %" in words
    assert "Tokens saved 3,200" in words


def test_an_operator_reads_any_organisations_numbers(operator_client: Client) -> None:
    asked_for(make_organisation("acme"))
    assert "Tokens saved 3,200" in seen(operator_client, "/orgs/acme/analytics")
    assert operator_client.get("/orgs/nobody/analytics").status_code == 404


@pytest.mark.parametrize("page", ["analytics", "analytics/now", "analytics.csv"])
def test_a_stranger_finds_nothing(customer_client: Client, acme: Organisation, page: str) -> None:
    make_organisation("globex")
    answers = [customer_client.get(f"/orgs/{org}/{page}") for org in ("globex", "nobody")]
    assert [one.status_code for one in answers] == [404, 404]
    organisation_delete(actor=SYSTEM, organisation=acme, expected=None)
    assert customer_client.get(f"/orgs/acme/{page}").status_code == 404


def test_of_several_organisations_each_has_its_tile_and_a_page(customer_client: Client, acme: Organisation) -> None:
    join(customer_client, make_organisation("globex"), "admin")
    page = customer_client.get("/").content.decode()
    assert page.count("data-tile=") == 2
    for slug in ("acme", "globex"):
        assert f'href="/orgs/{slug}/analytics"' in page
    assert "Tokens saved" not in page


def test_a_suspended_organisations_numbers_can_still_be_read(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    words = seen(customer_client)
    assert "Acme is suspended" in words
    assert "Tokens saved 3,200" in words


def test_the_csv_is_the_same_as_the_apis(customer_client: Client, acme: Organisation) -> None:
    asked_for(acme)
    ours = customer_client.get("/orgs/acme/analytics.csv?window=24h")
    theirs = api(acme).get("/orgs/acme/stats/series?window=24h&format=csv")
    assert ours.content == theirs.content
    for header in ("Content-Type", "Content-Disposition"):
        assert ours.headers[header] == theirs.headers[header]


def test_what_moves_comes_as_parts_that_know_their_place(customer_client: Client, acme: Organisation) -> None:
    """What somebody has opened lies in none of them."""
    asked_for(acme)
    whole, part = (customer_client.get(one).content.decode() for one in ("/", "/orgs/acme/analytics/now?window=24h"))
    places = re.findall(r'id="([\w-]+)" hx-swap-oob="true"', part)
    assert len(places) == len(set(places)) == 16
    for place in places:
        assert whole.count(f'id="{place}"') == 1
    assert "<details" not in part
    assert "hx-swap-oob" not in whole


# Operators


def test_the_overview_says_how_the_fleet_does(operator_client: Client) -> None:
    asked_for(make_organisation("acme"))
    words = seen(operator_client)
    assert words.startswith("Hit rate 40.0 %")
    assert "3,200 of 8,000 tokens, 80 requests" in words
    assert re.search(r"60\.0 % of prompt tokens had to be computed in [23] min of 24 h", words)
    assert "No alert fires" in words
    assert "No rollout is under way" in words
    assert "No agent has joined yet" in words
    assert "Nothing to compare with yet the day before has not been counted" in words


def test_only_a_demonstration_leads_to_its_experiments(operator_client: Client) -> None:
    assert "five-minutes" not in operator_client.get("/").content.decode()
    with demonstration():
        assert "five-minutes" in operator_client.get("/").content.decode()


def heard(name: str, **pool: int) -> None:
    agent = make_agent(name)
    agent.heartbeat, agent.last_seen_at = {"pool": pool, "engine": {"state": "ready"}}, timezone.now()
    agent.save()


def test_pools_and_who_is_in_sync_are_told_by_agent(operator_client: Client) -> None:
    heard("agent-1", capacity_bytes=2**20, used_bytes=2**18)
    make_agent("agent-2")
    words = seen(operator_client)
    assert re.search(r"\d of 2 agents (is|are) in sync pools hold 256.0 KiB of 1.0 MiB, 25 %", words)
    assert "agent-1 25 % 256.0 KiB of 1.0 MiB" in words
    assert "agent-2 not told yet" in words


def test_a_firing_alert_is_named_with_its_page(operator_client: Client) -> None:
    now = timezone.now()
    alert = Alert.objects.create(
        rule_name=HOSTILE, by_operator=False, metric="hit_ratio", subject="acme/chat", place="acme/chat",
        comparison="below", threshold=0.5, value=0.1, words="acme/chat: 10 % of its tokens", next_step="", since=now,
        fired_at=now,
    )  # fmt: skip
    page = operator_client.get("/").content.decode()
    assert f"1 alert fires {HOSTILE} firing acme/chat: 10 % of its tokens" in words_of(page)
    assert HOSTILE not in page
    assert str(alert.public_id) in page


def moved(slug: str, cached: int, before: int, requests: int = 40) -> Organisation:
    organisation, now = make_organisation(slug), timezone.now()
    store(Counted(default(organisation), now - timedelta(minutes=5), counts(requests, 1_000, cached)))
    store(Counted(default(organisation), now - timedelta(hours=30), counts(requests, 1_000, before)))
    store(Counted(default(organisation), now - timedelta(hours=60), counts(1, 100, 0)))
    return organisation


def test_who_moved_most_stands_first_in_points_with_the_tokens(operator_client: Client) -> None:
    moved("acme", 500, 450)
    moved("globex", 200, 600)
    moved("initech", 900, 100, requests=19)
    moved("umbrella", 300, 300)
    gone = moved("gone", 900, 100)
    organisation_delete(actor=SYSTEM, organisation=gone, expected=None)
    words = seen(operator_client)
    assert "globex lost most: 40.0 points" in words
    assert "globex ▼ down 40.0 points 20.0 % 60.0 % 1,000 acme ▲ up 5.0 points 50.0 % 45.0 % 1,000" in words
    assert "initech ▲" not in words, "19 requests say nothing"
    assert "umbrella ▼" not in words
    assert "gone ▲" not in words
    assert 'href="/orgs/globex/analytics"' in operator_client.get("/").content.decode()


def test_nothing_is_compared_with_a_day_that_was_not_counted_whole(operator_client: Client) -> None:
    organisation, now = make_organisation("acme"), timezone.now()
    store(Counted(default(organisation), now, counts(40, 1_000, 900)))
    store(Counted(default(organisation), now - timedelta(hours=26), counts(40, 1_000, 100)))
    words = seen(operator_client)
    assert re.search(r"Nothing to compare with yet the day before has been counted for 2 h( 1 min)? of 24 h", words)


def test_movers_are_found_by_as_many_questions_however_many_organisations_there_are() -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            movement(now=database_now())
        return len(queries)

    moved("acme", 500, 450)
    before = asked()
    for number in range(12):
        moved(f"org-{number}", 10 * number, 500)
    assert asked() == before


def test_the_overview_asks_no_more_the_more_there_is(operator_client: Client) -> None:
    moved("acme", 500, 450)
    heard("agent-1", capacity_bytes=2, used_bytes=1)
    operator_client.get("/")
    before = queries_of(operator_client, "/")
    for number in range(6):
        moved(f"org-{number}", 10 * number, 500)
        heard(f"agent-{number + 2}", capacity_bytes=2, used_bytes=1)
    assert queries_of(operator_client, "/") == before


def test_customers_have_no_part_of_the_overview(customer_client: Client, acme: Organisation) -> None:
    assert customer_client.get("/overview/now").status_code == 404


def test_the_overviews_parts_know_their_place(operator_client: Client) -> None:
    asked_for(make_organisation("acme"))
    whole, part = (operator_client.get(one).content.decode() for one in ("/", "/overview/now"))
    places = re.findall(r'id="([\w-]+)" hx-swap-oob="true"', part)
    assert len(places) == len(set(places)) == 14
    assert all(whole.count(f'id="{place}"') == 1 for place in places)
    assert "<details" not in part


def test_a_refused_form_keeps_the_numbers_on_the_page(customer_client: Client) -> None:
    asked_for(join(customer_client, make_organisation("acme", "chat"), "editor"))
    told = {"amount": "8", "unit": "d", "note": "", "revision": "0"}
    answer = customer_client.post("/orgs/acme/namespaces/chat/ttl", told)
    assert answer.status_code == 422
    words = words_of(answer.content.decode())
    assert "8 d is more than 7 d" in words
    assert "Tokens saved 3,200" in words
    assert 'href="/?window=7d"' in answer.content.decode()


def test_more_namespaces_than_are_shown_are_said_to_be_more(customer_client: Client, acme: Organisation) -> None:
    wanted = [(f"n{one:02}", "", None) for one in range(60)]
    namespaces_create(actor=SYSTEM, organisation=acme, wanted=wanted)
    now = timezone.now()
    store(*(Counted(one, now, counts(1, 100, 10)) for one in Namespace.objects.filter(organisation=acme)))
    assert "These are the largest; 12 more are in the answer below." in seen(customer_client)


# How much it asks


def test_the_overview_asks_the_database_no_more_with_200_organisations_than_with_2(operator_client: Client) -> None:
    def grow(numbers: range) -> None:
        made = [Organisation(slug=f"many-{number}", name="Many") for number in numbers]
        Organisation.objects.bulk_create(made)
        group = make_organisation(f"first-{numbers[0]}").namespaces.get(slug="default").group
        spaces = Namespace.objects.bulk_create(Namespace(organisation=one, group=group, slug="default") for one in made)
        store(*(Counted(one, timezone.now(), counts(40, 1_000, 100)) for one in spaces))

    def asked() -> int:
        recent.forget()
        return queries_of(operator_client, "/")

    grow(range(2))
    operator_client.get("/")
    few = asked()
    grow(range(2, 200))
    assert asked() == few


def test_who_moved_is_asked_once_a_minute_and_says_of_when_it_is(operator_client: Client) -> None:
    moved("acme", 500, 450)
    first = queries_of(operator_client, "/overview/now")
    assert queries_of(operator_client, "/overview/now") < first
    page = operator_client.get("/").content.decode()
    assert re.search(r'<div id="movers">.*?<time data-age datetime="', page, re.DOTALL)
    moved("globex", 900, 100)
    assert "globex" not in words_of(operator_client.get("/overview/now").content.decode())
    recent.forget()
    assert "globex" in words_of(operator_client.get("/overview/now").content.decode())


@pytest.mark.parametrize("group", ["fleet", "organisation"])
def test_the_tile_out_of_a_days_answer_is_what_sockets_tell_of_that_moment(db: None, group: str) -> None:
    organisation = moved("acme", 500, 450)
    name = "fleet" if group == "fleet" else organisation_group(organisation.pk)
    now = database_now()
    answer = stats_answer(scope_of_group(name), "24h", now=now)
    assert live_message_of(answer) == live_message(name, now=now)
