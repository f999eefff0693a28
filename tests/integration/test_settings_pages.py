"""Settings in a browser: prices, operators' tokens, agent groups, quality results. For operators alone."""

import html
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

from controlplane.analytics.prices import price_list, revision_now
from controlplane.fleet.models import QualityResult
from tenants.levels import FLEET
from tenants.models import AgentGroup, AuditRecord, OperatorToken
from tests.database.factories import make_agent, make_group, make_namespace, publish
from tests.web.api import make_organisation
from tests.web.pages import words

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"
PRICES, TOKENS, GROUPS, QUALITY = (f"/settings/{one}" for one in ("prices", "tokens", "groups", "quality"))
TODAY = timezone.now().date()


def get(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return words(answer)


# The fleet


def test_what_is_in_force_says_where_it_is_from(operator_client: Client) -> None:
    assert "says nothing of its own: what is built in holds" in get(operator_client, "/settings")
    publish(FLEET, ttl_seconds=5400, kv_dtype="int8")
    told = get(operator_client, "/settings")
    assert "revision 1 of the fleet’s policy holds" in told
    assert "TTL 90 min fleet policy" in told or "TTL 1 h 30 min fleet policy" in told
    assert "KV format int8 fleet policy" in told
    assert "Weight 1 built in" in told


# Prices

PRICE = {
    "model": "luminet-demo", "valid_from": str(TODAY), "currency": "EUR", "input": "0.15", "cached_input": "0.015",
    "output": "0.6", "revision": "0",
}  # fmt: skip


def price(client: Client, **more: str) -> HttpResponse:
    return client.post(PRICES, {**PRICE, **more})  # type: ignore[return-value]


def test_a_price_is_set_exactly_and_one_of_the_same_day_takes_its_place(operator_client: Client) -> None:
    assert "No token has a price yet" in get(operator_client, PRICES)
    assert price(operator_client, input="0.123456789").status_code == 302
    assert price(operator_client, revision="1", model="").status_code == 302
    assert price(operator_client, revision="2", output="0.7").status_code == 302
    found = {one.model: (str(one.input), str(one.output)) for one in price_list().prices}
    assert found.keys() == {"", "luminet-demo"}
    assert found["luminet-demo"][1].startswith("0.7")
    told = get(operator_client, PRICES)
    assert "2 prices in EUR, none an example" in told
    assert "every model without its own" in told
    assert AuditRecord.objects.latest("pk").verb == "prices.set"


def test_examples_are_called_examples_and_go_together(operator_client: Client) -> None:
    price(operator_client, is_example="on")
    told = get(operator_client, PRICES)
    assert "1 price in EUR, an example" in told
    assert "There are example prices in the list" in told
    assert price(operator_client, revision="1", currency="USD", model="m", drop_examples="on").status_code == 302
    assert [(one.model, one.currency) for one in price_list().prices] == [("m", "USD")]


def test_a_second_tab_learns_that_the_list_changed_and_keeps_its_numbers(operator_client: Client) -> None:
    price(operator_client)
    answer = price(operator_client, input="0.99", revision="0")
    assert answer.status_code == 422
    assert "it is revision 1 now, and this page shows it" in words(answer)
    assert 'value="0.99"' in answer.content.decode()
    assert 'name="revision" value="1"' in answer.content.decode()
    remove = {"do": "remove", "model": PRICE["model"], "valid_from": PRICE["valid_from"], "confirmed": "yes"}
    assert operator_client.post(PRICES, {**remove, "revision": "0"}).status_code == 422
    assert revision_now() == 1
    assert operator_client.post(PRICES, {**remove, "revision": "1"}).status_code == 302
    assert price_list().prices == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"input": "cheap"}, "Prompt, a million tokens: “cheap” is not a price from 0 to"),
        ({"input": "-1"}, "“-1” is not a price"),
        ({"cached_input": "0.2"}, "From the cache, a million tokens: 0.2 is more than input, which is 0.15."),
        ({"valid_from": "soon"}, "Holds from, UTC day: “soon” is no day"),
        ({"currency": "euro"}, "Currency: “euro” is not three capital letters"),
        ({"model": HOSTILE}, "cannot be the name of a model"),
        ({"model": "m" * 201}, "cannot be the name of a model"),
    ],
)
def test_a_wrong_price_is_refused_by_field(operator_client: Client, wrong: dict[str, str], said: str) -> None:
    answer = price(operator_client, **wrong)
    assert answer.status_code == 422
    assert said in words(answer)
    page = answer.content.decode()
    assert HOSTILE not in page
    for typed in wrong.values():
        assert html.escape(typed) in page
    assert revision_now() == 0


def test_what_was_invoiced_cannot_change(operator_client: Client) -> None:
    past = str(TODAY - timedelta(days=3))
    assert price(operator_client, valid_from=past).status_code == 302
    answer = price(operator_client, valid_from=past, revision="1", input="9")
    assert answer.status_code == 422
    assert "which has been invoiced" in words(answer)
    removed = operator_client.post(
        PRICES, {"do": "remove", "model": PRICE["model"], "valid_from": past, "revision": "1", "confirmed": "yes"}
    )
    assert removed.status_code == 422
    assert "Not removed" in words(removed)
    assert revision_now() == 1


def test_removing_a_price_asks_first(operator_client: Client) -> None:
    price(operator_client, model="")
    price(operator_client, revision="1")
    assert f'href="{PRICES}/remove?model={PRICE["model"]}&amp;day={PRICE["valid_from"]}"' in get_page(operator_client)
    unconfirmed = {"do": "remove", "model": PRICE["model"], "valid_from": PRICE["valid_from"], "revision": "2"}
    refused = operator_client.post(PRICES, unconfirmed)
    assert refused.status_code == 422
    assert "was not confirmed" in words(refused)
    asked = operator_client.get(f"{PRICES}/remove", {"model": PRICE["model"], "day": PRICE["valid_from"]})
    assert f"Remove the price of {PRICE['model']} from {PRICE['valid_from']}?" in words(asked)
    assert f"The price of every model without its own from {PRICE['valid_from']} applies then." in words(asked)
    assert len(price_list().prices) == 2
    assert operator_client.post(PRICES, {**unconfirmed, "confirmed": "yes"}).status_code == 302
    assert [one.model for one in price_list().prices] == [""]
    gone = operator_client.get(f"{PRICES}/remove", {"model": PRICE["model"], "day": PRICE["valid_from"]}, follow=True)
    assert "not in the list any more, so nothing was removed" in words(gone)


def test_removing_the_last_price_says_money_is_lost(operator_client: Client) -> None:
    price(operator_client)
    asked = operator_client.get(f"{PRICES}/remove", {"model": PRICE["model"], "day": PRICE["valid_from"]})
    assert "savings are then shown in tokens, not in money" in words(asked)


def get_page(client: Client) -> str:
    return client.get(PRICES).content.decode()


def test_a_price_to_change_is_filled_in(operator_client: Client) -> None:
    price(operator_client, input="0.25")
    page = operator_client.get(PRICES, {"model": PRICE["model"], "day": PRICE["valid_from"]}).content.decode()
    assert re.search(r'name="input" value="0.25\d*"', page)


# Tokens


def make(client: Client, **more: Any) -> HttpResponse:
    told = {"name": "ci", "scopes": ["stats:read"], "ends": "", "once": str(uuid4()), **more}
    return client.post(TOKENS, told)  # type: ignore[return-value]


def test_a_token_is_shown_once_and_works(operator_client: Client) -> None:
    answer = make(operator_client)
    assert answer.status_code == 201
    found = re.search(r"<pre[^>]*>([^<]+)</pre>", answer.content.decode())
    assert found
    assert "no-store" in answer["Cache-Control"]
    asked = Client().get("/api/v1/alerts", headers={"authorization": f"Bearer {found[1]}"})
    assert asked.status_code == 200
    page = operator_client.get(TOKENS).content.decode()
    assert found[1] not in page
    assert OperatorToken.objects.get().prefix in page


def test_a_form_sent_twice_makes_one_token(operator_client: Client) -> None:
    once = str(uuid4())
    first, second = make(operator_client, once=once), make(operator_client, once=once)
    secret = re.search(r"<pre[^>]*>([^<]+)</pre>", first.content.decode())
    assert secret
    assert secret[1] not in second.content.decode()
    assert "The token ci was made with this form already" in second.content.decode()
    assert OperatorToken.objects.count() == 1
    assert make(operator_client, once=once, name="other").status_code == 422


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "required"),
        ({"name": "n" * 300}, "Name:"),
        ({"name": f"{HOSTILE}\n"}, ""),
        ({"scopes": []}, "nothing is chosen"),
        ({"scopes": ["infer"]}, "“infer” is no scope of a token"),
        ({"ends": "2020-01-01"}, "Last day it works:"),
        ({"ends": "9999-12-31"}, "last day there is"),
        ({"ends": "never"}, "“never” is no day"),
    ],
)
def test_a_wrong_token_is_refused_by_field(operator_client: Client, wrong: dict[str, Any], said: str) -> None:
    answer = make(operator_client, **wrong)
    assert HOSTILE not in answer.content.decode()
    if said:
        assert answer.status_code == 422
        assert said in words(answer)
        assert not OperatorToken.objects.exists()


def test_a_token_is_revoked_by_its_name(operator_client: Client) -> None:
    make(operator_client)
    token = OperatorToken.objects.get()
    asked = get(operator_client, f"{TOKENS}?revoke={token.pk}")
    assert "Revoke ci: whatever uses it is refused at once" in asked
    wrong = operator_client.post(TOKENS, {"do": "revoke", "token": str(token.pk), "end-typed": HOSTILE})
    assert wrong.status_code == 422
    assert HOSTILE not in wrong.content.decode()
    right = {"do": "revoke", "token": str(token.pk), "end-typed": "ci"}
    assert operator_client.post(TOKENS, right).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert operator_client.post(TOKENS, right).status_code == 404
    assert operator_client.get(f"{TOKENS}?revoke=nonsense").status_code == 404


# Groups


def test_a_group_is_made_and_deleted_while_nothing_belongs_to_it(operator_client: Client) -> None:
    assert operator_client.post(GROUPS, {"slug": "gpu", "name": "GPU machines"}).status_code == 302
    assert "GPU machines" in get(operator_client, GROUPS)
    assert "Delete the group gpu" in get(operator_client, f"{GROUPS}?delete=gpu")
    right = {"do": "delete", "group": "gpu", "end-typed": "gpu"}
    make_agent(group=AgentGroup.objects.get(slug="gpu"))
    answer = operator_client.post(GROUPS, right)
    assert answer.status_code == 422
    assert "namespaces or agents belong to it" in words(answer)
    AgentGroup.objects.get(slug="gpu").agents.all().delete()
    assert operator_client.post(GROUPS, {**right, "end-typed": "cpu"}).status_code == 422
    assert operator_client.post(GROUPS, right).status_code == 302
    assert not AgentGroup.objects.filter(slug="gpu").exists()


def test_a_group_says_who_belongs_to_it(operator_client: Client) -> None:
    group = make_group("gpu")
    make_agent("agent-1", group=group)
    acme = make_organisation("acme")
    for slug in ("one", "two"):
        make_namespace(acme, slug, group=group)
    page = operator_client.get(GROUPS).content.decode()
    row = next(one for one in page.split("<tr>") if '<span class="sub">gpu</span>' in one)
    assert re.findall(r'class="num"><div>(\d+)<', row) == ["1", "2"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"slug": "Not a slug"}, "Slug:"),
        ({"slug": "s" * 100}, "Slug:"),
        ({"slug": HOSTILE}, "Slug:"),
        ({"slug": "default"}, "Slug:"),
        ({"name": ""}, "required"),
        ({"name": "n" * 300}, "Name:"),
    ],
)
def test_a_wrong_group_is_refused_by_field(operator_client: Client, wrong: dict[str, str], said: str) -> None:
    make_organisation("acme")  # with the group default
    count = AgentGroup.objects.count()
    answer = operator_client.post(GROUPS, {"slug": "gpu", "name": "GPU", **wrong})
    assert answer.status_code == 422
    assert said in words(answer)
    assert HOSTILE not in answer.content.decode()
    assert AgentGroup.objects.count() == count


# Quality

WHERE = {"model": "luminet-demo", "revision": "r1", "backend": "torch-cpu", "kv_dtype": "int4"}
TYPED = {"model_revision" if name == "revision" else name: value for name, value in WHERE.items()}


def result(**more: Any) -> QualityResult:
    told = {**WHERE, "verdict": "failed", "created_by": "op", **more}
    return QualityResult.objects.create(**told)


def test_results_are_shown_as_measured(operator_client: Client) -> None:
    assert "Nothing was measured yet: bf16 alone may serve" in get(operator_client, QUALITY)
    result(figures={"byte_divergence_low": 0.007, "byte_divergence_high": 0.0093, "agreement": 0.9049, "tokens": 53725})
    told = get(operator_client, QUALITY)
    assert "divergence 0.007 to 0.0093 a byte, same next token in 90.4 %, over 53,725 tokens" in told
    assert "failed may not serve" in told


def test_a_format_is_let_through_with_a_reason_that_stays(operator_client: Client) -> None:
    result()
    told = {**TYPED, "note": f"Ticket 4712 {HOSTILE}", "confirm": "on"}
    assert operator_client.post(QUALITY, told).status_code == 302
    page = operator_client.get(QUALITY)
    assert "let through unmeasured may serve" in words(page)
    assert HOSTILE not in page.content.decode()
    assert QualityResult.objects.latest("created_at").verdict == "overridden"
    assert AuditRecord.objects.latest("pk").verb == "quality.override"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"confirm": ""}, "Tick this to let it through; nothing has happened."),
        ({"kv_dtype": "int1"}, "KV format: “int1” is none of fp8"),
        ({"kv_dtype": "bf16"}, "is none of fp8"),
        ({"note": ""}, "required"),
        ({"note": "n" * 501}, "Why, for whoever asks later:"),
        ({"model": HOSTILE}, "cannot be the name of a model"),
        ({"model_revision": ""}, "required"),
        ({"backend": "b" * 21}, "at most 20 characters"),
    ],
)
def test_an_override_that_cannot_be_lets_nothing_through(
    operator_client: Client, wrong: dict[str, str], said: str
) -> None:
    answer = operator_client.post(QUALITY, {**TYPED, "note": "Ticket", "confirm": "on", **wrong})
    assert answer.status_code == 422
    assert said in words(answer)
    assert HOSTILE not in answer.content.decode()
    assert not QualityResult.objects.exists()


# Everybody else


@pytest.mark.parametrize("path", ["/settings", PRICES, TOKENS, GROUPS, QUALITY])
def test_customers_find_no_settings(customer_client: Client, path: str) -> None:
    assert customer_client.get(path).status_code == 404
    if path != "/settings":
        assert customer_client.post(path, {**PRICE, **TYPED, "name": "x", "slug": "x"}).status_code == 404
    assert (revision_now(), QualityResult.objects.count(), OperatorToken.objects.count()) == (0, 0, 0)


def test_however_much_there_is_the_queries_stay_the_same(operator_client: Client) -> None:
    def queries() -> list[int]:
        found = []
        for path in (PRICES, TOKENS, GROUPS, QUALITY):
            with CaptureQueriesContext(connection) as seen:
                get(operator_client, path)
            found.append(len(seen))
        return found

    def more(number: int) -> None:
        price(operator_client, model=f"m{number}", revision=str(revision_now()))
        make(operator_client)
        make_agent(f"agent-{number}", group=make_group(f"g{number}"))
        result(kv_dtype=("int4", "int8", "fp8")[number % 3])

    more(0)
    few = queries()
    for number in range(1, 6):
        more(number)
    assert queries() == few
