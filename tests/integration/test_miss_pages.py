"""Why misses happen: reasons with shares and advice, what gateways found, and the prompt linter."""

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.analytics.models import Divergence
from tenants.models import Namespace, Organisation
from tests.usage.evicted import evict
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
MISSES, LINT = "/orgs/acme/misses", "/orgs/acme/lint"
HOSTILE = "<script>alert(1)</script>"
FINDING = {
    "place": "721306e3e40c2535",
    "token": 37,
    "length_tokens": 6,
    "longest_tokens": 8,
    "share": 0.42,
    "recurs": 1.0,
    "recurring_tokens": 812,
    "distinct": 20,
    "seen": 20,
    "hit_ratio_now": 0.03,
    "hit_ratio_then": 0.91,
}


@pytest.fixture
def acme(customer_client: Client) -> Organisation:
    return join(make_organisation("acme", "chat"), role="viewer").organisation


def namespace(slug: str = "chat") -> Namespace:
    return Namespace.objects.get(organisation__slug="acme", slug=slug)


def seen(client: Client, path: str = MISSES, **told: Any) -> str:
    answer = client.get(path, told)
    assert answer.status_code == 200
    return words(answer)


def missed(slug: str = "chat", *, cached: int = 0, **by_reason: int) -> None:
    told = {f"missed_{reason}": tokens for reason, tokens in by_reason.items()}
    prompt = cached + sum(by_reason.values())
    store(Counted(namespace(slug), timezone.now(), counts(10, prompt, cached, **told)))


def sampled(slug: str = "chat", *, agent: str = "gateway", hours: float = 0, findings: Any = (), **told: Any) -> None:
    ratios = (
        {"hit_ratio_now": 0.03, "hit_ratio_then": 0.91} if findings else {"hit_ratio_now": 0.5, "hit_ratio_then": 0.5}
    )
    sample = {"prompts": 48, "tokens": 41_230, "findings": list(findings), "partings": [], **ratios, **told}
    at = timezone.now() - timedelta(hours=hours)
    Divergence.objects.create(agent=agent, namespace_id=namespace(slug).pk, told=sample, at=at)


def test_before_anything_was_counted_nothing_is_claimed(customer_client: Client, acme: Organisation) -> None:
    told = seen(customer_client)
    assert "Nothing was asked in the last 24 h, so nothing was missed" in told
    assert "No prompt was looked at in the last 24 h" in told
    assert "chat: not looked at in the last 24 h" in told
    assert " %" not in told


def test_reasons_have_shares_and_what_to_do_about_each(customer_client: Client, acme: Organisation) -> None:
    missed(cached=500, cold=100, expired=300, tail=100)
    told = seen(customer_client)
    assert (
        "50.0 % of prompt tokens were not served from cache, 60.0 % of those for one reason: they had expired" in told
    )
    assert "3 reasons explain all 500 tokens that were not served from cache" in told
    assert "Expired It was here, and nobody used it again within its time to live. 60.0 % 300 tokens A longer" in told
    assert (
        told.index("Expired It was")
        < told.index("New to the cache No prompt")
        < told.index("Behind the last full block Blocks")
    )
    assert "chat 500 50.0 % Expired 60.0 % of its misses See the curve" in told


def test_eviction_is_by_fleet_pressure_or_by_ones_own_traffic(customer_client: Client, acme: Organisation) -> None:
    missed(evicted=100, quota=50)
    assert "Evicted from a full pool It was here" in seen(customer_client), "for whom is not told"
    chat = Namespace.objects.get(organisation=acme, slug="chat")
    evict(chat, make_organisation("globex").namespaces.get(), 3)
    told = seen(customer_client)
    assert "Evicted by fleet pressure" in told
    assert "Evicted by your own traffic" in told
    evict(chat, chat, 1)
    told = seen(customer_client)
    assert "Evicted from a full pool, 75.0 % of the blocks by fleet pressure and 25.0 % by your own traffic" in told
    assert "globex" not in told


def test_namespaces_are_in_the_order_of_what_they_missed(customer_client: Client, acme: Organisation) -> None:
    missed("chat", cold=10)
    missed("default", cold=20)
    assert "default missed most: 20 tokens" in seen(customer_client)


def test_a_finding_is_told_with_its_gain_and_its_basis(customer_client: Client, acme: Organisation) -> None:
    missed(cold=100)
    sampled(findings=[FINDING], partings=[{"token": 0, "until": 43, "share": 0.42}])
    told = seen(customer_client)
    assert "One change to the prompts of chat would bring 88 points" in told
    assert "chat: hit rate 3 % → 91 % of the sample, with what varies at the end" in told
    assert "42 % of the prompts differ first at token 37 and agree again 6 tokens later, for 812 tokens." in told
    assert "Another value in each of 20 prompts" in told
    assert "48 prompts sampled, 41,230 tokens, by 1 gateway, looked at at" in told
    assert "token 0 to 43 42 %" in told


def test_a_sample_in_which_nothing_would_gain_says_so(customer_client: Client, acme: Organisation) -> None:
    missed(cold=100)
    sampled()
    told = seen(customer_client)
    assert "In the prompts that were looked at nothing varies that would gain by moving" in told
    assert "chat: nothing varies that would gain by moving" in told
    assert "points" not in told


def test_what_was_found_the_day_before_says_nothing_of_today(customer_client: Client, acme: Organisation) -> None:
    missed(cold=100)
    sampled(findings=[FINDING], hours=25)
    assert "No prompt was looked at in the last 24 h" in seen(customer_client)


def test_another_organisations_misses_and_findings_are_not_there(customer_client: Client, acme: Organisation) -> None:
    globex = make_organisation("globex").namespaces.get()
    store(Counted(globex, timezone.now(), counts(10, 77_777, 0, missed_cold=77_777)))
    assert "77,777" not in seen(customer_client)
    assert customer_client.get("/orgs/globex/misses").status_code == 404
    assert customer_client.get("/orgs/globex/lint").status_code == 404
    assert customer_client.post("/orgs/globex/lint", {"prompts": "x"}).status_code == 404


def test_many_namespaces_are_asked_for_at_once(customer_client: Client) -> None:
    join(make_organisation("acme", *(f"n{number:02}" for number in range(30))))
    missed("n00", cold=1000)
    sampled("n00", findings=[FINDING])
    seen(customer_client)
    with CaptureQueriesContext(connection) as few:
        seen(customer_client)
    for number in range(1, 30):
        missed(f"n{number:02}", cold=number)
        sampled(f"n{number:02}")
    with CaptureQueriesContext(connection) as many:
        told = seen(customer_client)
    assert len(many) == len(few)
    assert "And 10 more, which missed less." in told


# The linter


def linted(client: Client, prompts: str) -> Any:
    return client.post(LINT, {"prompts": prompts})


RULES = " ".join(f"Rule {number}: be kind and brief in every answer you give." for number in range(12))
TEXTS = [f"Now: 2026-11-20T10:0{number}:10Z\n{RULES}" for number in range(4)]


def test_pasted_texts_are_told_where_they_differ(customer_client: Client, acme: Organisation) -> None:
    assert "Find what varies in your prompts" in seen(customer_client, LINT)
    answer = linted(customer_client, "\n---\n".join(TEXTS))
    told = words(answer)
    assert answer.status_code == 200
    assert re.search(r"Move what varies to the end: hit rate \d+ % → \d+ %", told)
    assert "4 prompts, about" in told
    assert "a timestamp" in told
    assert "prompt 1, text, line 1, column 6" in told
    assert "<mark>2026-11-20T10:00:10Z</mark>" in answer.content.decode()


@pytest.mark.parametrize(
    "pasted",
    [
        json.dumps([{"prompt": one} for one in TEXTS]),
        "\n".join(json.dumps({"messages": [{"role": "system", "content": one}]}) for one in TEXTS),
        "\r\n-----\r\n".join(TEXTS),
    ],
)
def test_they_are_read_as_people_have_them(customer_client: Client, acme: Organisation, pasted: str) -> None:
    assert "4 prompts, about" in words(linted(customer_client, pasted))


def test_one_prompt_is_looked_over(customer_client: Client, acme: Organisation) -> None:
    told = words(linted(customer_client, json.dumps([{"role": "system", "content": TEXTS[0]}])))
    assert "Looks like a timestamp" in told
    assert "Nothing here proves that it varies." in told
    assert "Nothing in this prompt looks as if it varied" in words(linted(customer_client, "You are kind."))


@pytest.mark.parametrize(
    ("pasted", "said"),
    [
        ("", "This field is required."),
        ("x" * 400_001, "at most 400000"),
        ('{"model": "m"}', "A prompt is text, a list of messages"),
        ('{"messages": ["x"]}', "No message with a role"),
        ('{"messages": []}', "There are no messages"),
        ("\n---\n".join(["x"] * 33), "These are 33 prompts, 32 are the most."),
        ("a\0b", "Null characters are not allowed."),
    ],
)
def test_what_cannot_be_looked_at_is_told_and_kept(
    customer_client: Client, acme: Organisation, pasted: str, said: str
) -> None:
    answer = linted(customer_client, pasted)
    assert answer.status_code == 422
    assert said.lower() in words(answer).lower()
    if 0 < len(pasted) < 1000 and "\0" not in pasted:
        assert html.escape(pasted) in answer.content.decode()


@pytest.mark.parametrize(
    "hostile",
    [
        "\n---\n".join(f"{HOSTILE} 2026-11-20T10:0{number}:10Z {HOSTILE} {RULES}" for number in range(4)),
        '{"messages": [{"role": "\\ud800<script>alert(1)</script>", "content": "\\ud800 2026-11-20T10:00:10Z x y z"}]}',
        "[" * 100_000,
        "---\n---\n---",
        "💥" * 1000,
    ],
)
def test_hostile_prompts_are_text(customer_client: Client, acme: Organisation, hostile: str) -> None:
    answer = linted(customer_client, hostile)
    assert answer.status_code in (200, 422)
    assert HOSTILE not in answer.content.decode()


def test_nothing_of_a_prompt_is_kept(customer_client: Client, acme: Organisation) -> None:
    linted(customer_client, "warm up")
    with CaptureQueriesContext(connection) as asked:
        linted(customer_client, "\n---\n".join(TEXTS))
    said = " ".join(one["sql"] for one in asked)
    assert "Rule" not in said
    assert not re.search(r"\b(INSERT|DELETE)\b", said)
