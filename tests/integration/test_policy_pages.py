"""The policy editor at its three levels: what is in force, a preview of a draft, publishing, and the way back."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.fleet.models import OperationStep, QualityResult
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.spec import Guards
from tenants.actor import SYSTEM
from tenants.bounds import Bounds, KvDtypes, SecondsRange
from tenants.levels import FLEET, Place, level_of
from tenants.models import AuditRecord, Namespace, Organisation, PolicyLevel, PolicyRevision
from tenants.policy import FIELDS
from tenants.services.organisations import bounds_put, organisation_update
from tests.database.factories import make_agent, make_namespace, publish
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
POLICY = "/orgs/acme/namespaces/default/policy"
WHOLE = "/orgs/acme/policy"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


def place(slug: str = "default") -> Place:
    namespace = Namespace.objects.select_related("organisation").get(organisation__slug="acme", slug=slug)
    return Place(namespace.organisation, namespace)


def level(slug: str = "default") -> PolicyLevel:
    return level_of(place(slug))


def form_of(client: Client, path: str = POLICY) -> dict[str, Any]:
    """All that a browser would send of the page, as it stands there."""
    return fields_of(client.get(path).content.decode())


def fields_of(page: str) -> dict[str, Any]:
    form = page[page.index('<form id="policy-form"') :]
    found: dict[str, list[str]] = {}
    for tag in re.findall(r"<input [^>]*>|<select.*?</select>", form, re.DOTALL):
        name = re.search(r' name="([^"]+)"', tag)
        if name is None or " disabled" in tag.partition(">")[0] or "csrf" in tag:
            continue
        if tag.startswith("<select"):
            chosen = re.search(r'value="([^"]*)" selected', tag) or re.search(r'value="([^"]*)"', tag)
            found.setdefault(name[1], []).append(chosen[1] if chosen else "")
        elif ('type="radio"' not in tag and 'type="checkbox"' not in tag) or " checked" in tag:
            value = re.search(r' value="([^"]*)"', tag)
            found.setdefault(name[1], []).append(html.unescape(value[1]) if value else "on")
    return found


def send(client: Client, path: str = POLICY, *, button: str = "publish", **typed: Any) -> HttpResponse:
    """The page's own form with these changes; by the button Publish, unless another is pressed."""
    form = form_of(client, path) | {name.replace("__", "-"): value for name, value in typed.items()}
    name, _, value = button.partition("=")
    pressed = {name: value or "yes"}
    return client.post(path, form | pressed)  # type: ignore[return-value]


def told(response: Any, key: str) -> str:
    """What stands beside and below one field."""
    page = response.content.decode()
    found = re.search(rf'id="{key}-from".*?id="{key}-hint".*?</div>', page, re.DOTALL)
    assert found is not None, key
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", found[0].partition(">")[2]).split()))


# Reading


def test_every_field_stands_there_with_its_value_in_force_and_where_it_comes_from(
    operator_client: Client, acme: Organisation
) -> None:
    publish(Place(acme), ttl_seconds=600)
    publish(place(), reserved_share=0.12)
    page = operator_client.get(POLICY)
    assert told(page, "ttl_seconds").startswith("10 min from the organisation")
    assert told(page, "reserved_share").startswith("12 % of each pool this namespace’s own")
    assert told(page, "kv_dtype").startswith("fp8 fleet default")
    for name in FIELDS:
        assert told(page, name)
    assert "default keeps blocks for 10 min after their last use, as fp8" in words(page)
    assert "One" not in words(page)
    assert "1 of 11 values is this namespace’s own, the others are inherited" in words(page)


def test_a_share_reads_as_bytes_and_tokens_on_each_agent(operator_client: Client, acme: Organisation) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    publish(place(), reserved_share=0.12)
    said = told(operator_client.get(POLICY), "reserved_share")
    assert "12 % = 30.7 MiB = 251,648 tokens on each of 2 agents, in fp8." in said


def test_each_format_says_what_a_token_costs_and_what_was_measured(operator_client: Client, acme: Organisation) -> None:
    make_agent()
    figures = {"byte_delta_percent": 0.0894, "byte_divergence": 0.00172}
    QualityResult.objects.create(
        model="m", revision="r1", backend="simulated", kv_dtype="fp8", verdict="passed", figures=figures
    )
    page = words(operator_client.get(POLICY))
    assert "fp8 keys E4M3, values E5M2 128 B a token, half of bf16 perplexity +0.09 %, KL 1.7e-3 passed" in page
    assert "bf16 16 bits, what the others are compared with 256 B a token the baseline may always be served" in page
    assert "int8 8 bits with scales no agent here can do it" in page


def test_what_nobody_measured_is_said_to_be_so(operator_client: Client, acme: Organisation) -> None:
    make_agent()
    assert "half of bf16 not measured on m, simulated may not be served" in words(operator_client.get(POLICY))


def test_a_member_reads_what_they_may_choose_and_what_only_the_operator_changes(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme, role="editor")
    bounds = Bounds(ttl_seconds=SecondsRange(min=60, max=600), kv_dtype=KvDtypes(allowed=["fp8", "int8"]))
    bounds_put(actor=SYSTEM, organisation=acme, expected=None, bounds=bounds)
    page = customer_client.get(POLICY)
    assert "Your operator lets you choose 1 min to 10 min." in told(page, "ttl_seconds")
    assert "Your operator lets you choose fp8, int8." in told(page, "kv_dtype")
    assert "Only your operator may change it: it takes from what others share." in told(page, "reserved_share")
    assert 'name="reserved_share"' not in page.content.decode()
    assert re.search(r'name="kv_dtype" value="int4" disabled', page.content.decode())


def test_who_may_only_read_sees_every_value_and_no_form_to_change_it(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme, role="viewer")
    page = customer_client.get(POLICY)
    assert "Editors and admins may change them." in words(page)
    assert told(page, "ttl_seconds").startswith("5 min fleet default")
    assert 'name="publish"' not in page.content.decode()
    assert customer_client.post(POLICY, {"publish": "yes", "ttl_seconds": "10"}).status_code == 403
    assert level().revision == 0


def test_in_a_suspended_organisation_it_can_be_read_and_nothing_changed(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme, role="editor")
    organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
    page = customer_client.get(POLICY)
    assert "This organisation is suspended" in words(page)
    assert 'name="publish"' not in page.content.decode()
    assert customer_client.post(POLICY, {"publish": "yes", "ttl_seconds": "10"}).status_code == 403
    assert level().revision == 0


# Previewing


def test_a_preview_says_old_and_new_with_units_who_is_concerned_and_changes_nothing(
    operator_client: Client, acme: Organisation
) -> None:
    make_agent("agent-1")
    page = send(operator_client, button="preview", ttl_seconds="12", ttl_seconds__unit="min")
    said = words(page)
    assert page.status_code == 200
    assert "TTL old: − 5 min (fleet default) new: + 12 min (this namespace’s own)" in said
    assert "Something else comes into force in 1 namespace: acme/default; on 1 engine: agent-1." in said
    assert told(page, "ttl_seconds").startswith("becomes 12 min was 5 min fleet default")
    assert "1 change, not published" in said
    assert level().revision == 0


def test_members_read_bands_and_no_agents_name(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="editor")
    make_agent("agent-1")
    page = send(customer_client, button="preview", ttl_seconds="12", ttl_seconds__unit="min")
    said = words(page)
    assert "Something else comes into force in 1 namespace: acme/default." in said
    assert re.search(r"each agent .*? [KMG]iB to ", said)
    assert "agent-1" not in page.content.decode()


def test_another_format_is_said_to_be_a_cold_cache(operator_client: Client, acme: Organisation) -> None:
    page = words(send(operator_client, button="preview", kv_dtype="bf16"))
    assert "Cold cache. fp8 → bf16 is a cold cache" in page


def test_what_contradicts_the_rest_stands_beside_its_field_in_the_units_of_the_page(
    operator_client: Client, acme: Organisation
) -> None:
    page = send(operator_client, button="preview", ttl_seconds="3", ttl_seconds__unit="d")
    assert "3 d is longer than “Maximum age”, which is 24 h." in told(page, "ttl_seconds")
    page = send(operator_client, button="preview", reserved_share="60", limit_share="50")
    assert "60 % is more than “Share limit”, which is 50 %." in told(page, "reserved_share")


def test_a_format_that_no_agent_can_do_is_told_beside_the_formats(operator_client: Client, acme: Organisation) -> None:
    make_agent()
    page = send(operator_client, button="preview", kv_dtype="int8")
    assert "no agent here can do int8" in told(page, "kv_dtype")


def test_what_is_inherited_anyway_is_said_to_change_nothing_in_force(
    operator_client: Client, acme: Organisation
) -> None:
    page = words(send(operator_client, button="preview", ttl_seconds="5", ttl_seconds__unit="min"))
    assert "Nothing in force differs now" in page
    assert "comes into force" not in page
    assert "anything else in force" not in page
    assert "1 change, not published" in page


def test_while_typing_the_part_says_the_same_without_the_page(operator_client: Client, acme: Organisation) -> None:
    form = form_of(operator_client) | {"ttl_seconds": ["never"]}
    part = operator_client.post(f"{POLICY}/check", form)
    page = part.content.decode()
    assert "<html" not in page
    assert "“never” is no amount of time" in told(part, "ttl_seconds")
    assert page.count('hx-swap-oob="true"') == 2 * len(FIELDS) + 4 + 2
    pressed = {"add": "model", "model-name": "m", "model-new": "weight"}  # HTMX sends the last button, too
    assert "m0-" not in operator_client.post(f"{POLICY}/check", form | pressed).content.decode()
    assert level().revision == 0


def test_the_button_says_how_many_are_reached_first(operator_client: Client, acme: Organisation) -> None:
    for number in range(4):
        make_agent(f"agent-{number}")
    page = send(operator_client, button="preview", ttl_seconds="10")
    assert "Publish revision 1 to 4 agents at once" in words(page)
    canary = send(operator_client, button="preview", ttl_seconds="10", strategy="canary", steps="25, 100")
    assert "Publish revision 1 to 1 of 4 engines first" in words(canary)


# Publishing


def test_publishing_is_offered_where_something_is_changed(operator_client: Client, acme: Organisation) -> None:
    button = 'name="publish"'
    page = operator_client.get(POLICY)
    assert button not in page.content.decode()
    assert "Change a value to publish." in words(page)
    typed = form_of(operator_client) | {"ttl_seconds": ["10"]}
    for path in (POLICY, f"{POLICY}/check"):
        assert button in operator_client.post(path, typed).content.decode()
        assert button not in operator_client.post(path, form_of(operator_client)).content.decode()


def test_an_operator_publishes_a_change_and_everything_else_stays(operator_client: Client, acme: Organisation) -> None:
    said: dict[str, Any] = {
        "kv_dtype": "int4",
        "request_kv_dtypes": ["int8", "bf16"],
        "max_age_seconds": None,
        "weight": 0.1,
        "limit_share": 0.07,
        "models": {"qwen3-8b": {"ttl_seconds": 61, "prefix_caching": False}, "other": {}},
    }
    publish(place(), **said)
    answer = send(operator_client, ttl_seconds="1,5", ttl_seconds__unit="h", note="Chats pause longer")
    assert (answer.status_code, answer["Location"]) == (302, POLICY)
    assert level().policy == {**said, "ttl_seconds": 5400}
    revision = PolicyRevision.objects.get(level=level(), number=2)
    assert (revision.note, revision.author) == ("Chats pause longer", "operator@luminet.example")
    assert AuditRecord.objects.latest("pk").verb == "policy.publish"


def test_without_agents_the_page_says_that_nobody_serves_it(operator_client: Client, acme: Organisation) -> None:
    send(operator_client, ttl_seconds="10")
    assert "acme/default: revision 1 is published. No agent serves it yet" in words(operator_client.get(POLICY))


def test_after_publishing_acknowledgements_tick_in_on_the_page(operator_client: Client, acme: Organisation) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    answer = send(operator_client, ttl_seconds="10")
    rollout = Rollout.objects.get()
    assert answer["Location"] == f"{POLICY}?rollout={rollout.pk}"
    page = operator_client.get(answer["Location"])
    assert "acme/default: revision 1 is published. 0 of 2 agents acknowledged it so far" in words(page)
    assert f'hx-get="/published/{rollout.pk}"' in page.content.decode()
    OperationStep.objects.update(state=OperationStep.State.DONE, done_at=timezone.now())
    assert "All 2 agents acknowledged it." in words(operator_client.get(answer["Location"]))


def test_a_canary_begins_with_the_steps_that_were_typed(operator_client: Client, acme: Organisation) -> None:
    for number in range(4):
        make_agent(f"agent-{number}")
    send(operator_client, ttl_seconds="10", strategy="canary", steps="25, 100", bake="2", bake__unit="min")
    rollout = Rollout.objects.get()
    assert (rollout.strategy, rollout.steps, rollout.bake_seconds) == ("canary", [25, 100], 120)
    assert len(rollout.reached) == 1


def test_a_canary_begins_under_the_guards_that_were_typed(operator_client: Client, acme: Organisation) -> None:
    for number in range(4):
        make_agent(f"agent-{number}")
    form = form_of(operator_client)
    assert [form[name] for name in ("guard-hit", "guard-ttft", "guard-errors", "guard-requests")] == [
        ["5"],
        ["50"],
        ["2"],
        ["20"],
    ]
    guards = {"guard-hit": "7.5 %", "guard-ttft": "", "guard-errors": "0", "guard-requests": "100"}
    operator_client.post(
        POLICY, {**form, "ttl_seconds": "10", "strategy": "canary", **guards, "guard-integrity": [], "publish": "yes"}
    )
    assert Rollout.objects.get().guards == {
        "hit_ratio_drop": 0.075,
        "ttft_p95_rise": None,
        "error_ratio": 0.0,
        "integrity": False,
        "min_requests": 100,
    }


def test_a_canary_whose_guards_nobody_touched_has_those_of_the_api(operator_client: Client, acme: Organisation) -> None:
    for number in range(4):
        make_agent(f"agent-{number}")
    send(operator_client, ttl_seconds="10", strategy="canary")
    assert Rollout.objects.get().guards == Guards().model_dump()


@pytest.mark.parametrize(
    ("guard", "typed", "why"),
    [
        ("guard-hit", "a lot", "“a lot” is no bound: write points, as 5 or 2.5, or nothing"),
        ("guard-hit", "101", "101 points is more than 100, the most there is."),
        ("guard-ttft", "10001", "10001 % is more than 10,000, the most there is."),
        ("guard-errors", "-1", "“-1” is no bound: write points"),
        ("guard-requests", "0", "0 is no whole number from 1 to 1,000,000."),
        ("guard-requests", "1.5", "1.5 is no whole number"),
        ("guard-requests", "٣", "“٣” is no number of requests"),
    ],
)
def test_a_guard_that_is_none_is_told_beside_it_and_kept(
    operator_client: Client, acme: Organisation, guard: str, typed: str, why: str
) -> None:
    form = form_of(operator_client) | {"ttl_seconds": "10", "strategy": "canary", guard: typed}
    for path, button in ((POLICY, {"publish": "yes"}), (f"{POLICY}/check", {})):
        answer = operator_client.post(path, form | button)
        page = answer.content.decode()
        beside = page[page.index(f'id="{guard}-hint"') :].partition("</div>")[0]
        assert why in html.unescape(beside)
    answer = operator_client.post(POLICY, form | {"publish": "yes"})
    assert answer.status_code == 422
    assert f'name="{guard}" value="{typed}"' in answer.content.decode()
    assert level().revision == 0
    assert operator_client.post(POLICY, form | {"strategy": "all", "publish": "yes"}).status_code == 302


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("50", "the last has to be 100"),
        ("50, 20, 100", "each share has to be larger than the one before"),
        ("a few", "Steps are shares of the engines in percent"),
        ("0, 100", "from 1 to 100 %"),
        ("", "Steps are shares of the engines in percent"),
    ],
)
def test_steps_that_lead_nowhere_are_told_and_kept(
    operator_client: Client, acme: Organisation, steps: str, why: str
) -> None:
    answer = send(operator_client, ttl_seconds="10", strategy="canary", steps=steps)
    assert answer.status_code == 422
    assert why in words(answer)
    assert f'name="steps" value="{steps}"' in answer.content.decode()
    assert level().revision == 0


def test_a_field_that_is_emptied_is_inherited_again(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=60, kv_dtype="int4", request_kv_dtypes=["int8"])
    send(operator_client, ttl_seconds="", kv_dtype="", request_kv_dtypes__own="")
    assert level().policy == {}


def test_no_cap_and_no_format_are_values_and_not_inherited(operator_client: Client, acme: Organisation) -> None:
    send(operator_client, max_age_seconds__unit="none", request_kv_dtypes__own="own")
    assert level().policy == {"max_age_seconds": None, "request_kv_dtypes": []}


def test_the_button_inherit_empties_its_field_and_publishes_nothing(
    operator_client: Client, acme: Organisation
) -> None:
    publish(place(), ttl_seconds=60)
    page = send(operator_client, button="inherit=ttl_seconds")
    assert told(page, "ttl_seconds").startswith("becomes 5 min, inherited was 1 min this namespace’s own")
    assert level().revision == 1


@pytest.mark.parametrize(
    ("typed", "key", "why"),
    [
        ({"ttl_seconds": "8", "ttl_seconds__unit": "d"}, "ttl_seconds", "8 d is more than 7 d, the most there is."),
        ({"ttl_seconds": "0"}, "ttl_seconds", "0 min is less than 1 s"),
        ({"ttl_seconds": "0.001"}, "ttl_seconds", "is no whole number of seconds"),
        ({"ttl_seconds": "9" * 5000}, "ttl_seconds", "is no amount of time"),
        ({"ttl_seconds": HOSTILE}, "ttl_seconds", "is no amount of time"),
        ({"ttl_seconds": "5", "ttl_seconds__unit": HOSTILE}, "ttl_seconds", "is no unit of time"),
        ({"reserved_share": "101"}, "reserved_share", "101 % is more than 100 %"),
        ({"limit_share": "-1"}, "limit_share", "is no share"),
        ({"weight": "0"}, "weight", "is not between 0.001 and 1000"),
        ({"weight": HOSTILE}, "weight", "is no weight"),
        ({"kv_dtype": HOSTILE}, "kv_dtype", "is none of bf16"),
        ({"request_kv_dtypes__own": "own", "request_kv_dtypes": [HOSTILE]}, "request_kv_dtypes", "is no format"),
    ],
)
def test_what_cannot_be_read_is_told_beside_its_field_and_nothing_is_published(
    operator_client: Client, acme: Organisation, typed: dict[str, Any], key: str, why: str
) -> None:
    answer = send(operator_client, **typed)
    assert answer.status_code == 422
    assert why in told(answer, key)
    assert HOSTILE not in answer.content.decode()
    assert "<title>Error: " in answer.content.decode()
    assert level().revision == 0


def test_what_was_typed_stays_also_in_the_fields_that_are_right(operator_client: Client, acme: Organisation) -> None:
    answer = send(operator_client, ttl_seconds="never", weight="2.5", kv_dtype="int8", note=HOSTILE)
    form = fields_of(answer.content.decode())
    assert (form["ttl_seconds"], form["weight"], form["kv_dtype"]) == (["never"], ["2.5"], ["int8"])
    assert form["note"] == [HOSTILE]
    assert HOSTILE not in answer.content.decode()


def test_a_note_that_is_too_long_is_told_beside_the_note(operator_client: Client, acme: Organisation) -> None:
    answer = send(operator_client, ttl_seconds="10", note="x" * 501)
    assert (answer.status_code, level().revision) == (422, 0)
    assert "has 501 characters, 500 is the most" in words(answer)


def test_what_is_published_already_is_not_published_again(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=600)
    answer = send(operator_client)
    assert "Nothing is changed: revision 1 says all of it already." in words(answer)
    assert level().revision == 1


def test_a_member_is_told_that_it_is_out_of_bounds_whatever_the_browser_sends(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme, role="editor")
    bounds_put(actor=SYSTEM, organisation=acme, expected=None, bounds=Bounds(ttl_seconds=SecondsRange(min=60, max=600)))
    answer = send(customer_client, ttl_seconds="2", ttl_seconds__unit="h", reserved_share="50")
    assert answer.status_code == 422
    assert "2 h is more than 10 min, the most you may choose." in told(answer, "ttl_seconds")
    assert "only an operator may change this." in told(answer, "reserved_share")
    assert level().revision == 0


def test_what_a_member_cannot_change_survives_their_publishing(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="editor")
    publish(place(), reserved_share=0.2, models={"m": {"weight": 3.0, "ttl_seconds": 60}})
    assert send(customer_client, ttl_seconds="10").status_code == 302
    assert level().policy == {
        "ttl_seconds": 600,
        "reserved_share": 0.2,
        "models": {"m": {"weight": 3.0, "ttl_seconds": 60}},
    }


# Two people at once


def test_who_was_slower_reads_what_changed_and_keeps_what_they_typed(
    operator_client: Client, acme: Organisation
) -> None:
    publish(place(), ttl_seconds=60)
    form = form_of(operator_client) | {"ttl_seconds": ["20"], "note": ["because"], "weight": ["nonsense"]}
    publish(place(), ttl_seconds=60, kv_dtype="int4")
    answer: Any = operator_client.post(POLICY, form | {"publish": "yes"})
    said = words(answer)
    assert answer.status_code == 422
    assert re.search(
        r"Revision 2 was published meanwhile by Luminet, \d+ \w+ 20\d\d \d\d:\d\d UTC. What you typed", said
    )
    assert "send it again to publish it as revision 3" in said
    assert "KV format: inherited → int4" in said
    again = fields_of(answer.content.decode())
    assert (again["ttl_seconds"], again["note"], again["weight"]) == (["20"], ["because"], ["nonsense"])
    assert (again["kv_dtype"], again["revision"]) == (["int4"], ["2"])  # left alone, it follows
    assert level().revision == 2
    operator_client.post(POLICY, again | {"weight": "", "publish": "yes"})
    assert level().policy == {"ttl_seconds": 1200, "kv_dtype": "int4"}


def test_who_was_slower_than_several_reads_who_was_last_and_no_operators_name(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme, role="editor")
    form = form_of(customer_client) | {"ttl_seconds": ["20"], "publish": "yes"}
    publish(place(), ttl_seconds=60)
    publish(place(), weight=2.0)
    said = words(customer_client.post(POLICY, form))
    assert "2 revisions were published meanwhile. Revision 2 was published last by an operator, " in said
    assert "Weight: inherited → 2" in said


def test_models_follow_what_was_published_meanwhile_and_keep_what_was_typed(
    operator_client: Client, acme: Organisation
) -> None:
    publish(place(), models={"a": {"ttl_seconds": 60}, "b": {"ttl_seconds": 60}})
    form = form_of(operator_client) | {"m0-ttl_seconds": ["7"]}
    publish(place(), models={"a": {"ttl_seconds": 60}, "c": {"kv_dtype": "int8"}})
    answer = operator_client.post(POLICY, form | {"publish": "yes"})
    again = fields_of(answer.content.decode())
    operator_client.post(POLICY, again | {"publish": "yes"})
    assert level().policy == {"models": {"a": {"ttl_seconds": 420}, "c": {"kv_dtype": "int8"}}}


@pytest.mark.parametrize("revision", ["", "x", "9" * 30, "77", "-1"])
def test_a_revision_that_never_was_is_no_way_in(operator_client: Client, acme: Organisation, revision: str) -> None:
    publish(place(), ttl_seconds=60)
    answer = send(operator_client, ttl_seconds="10", revision=revision)
    assert answer.status_code == 422
    assert level().revision == 1


# Single models


def test_a_model_gets_values_of_its_own_without_any_script(operator_client: Client, acme: Organisation) -> None:
    page = send(operator_client, button="add=model", model__name="qwen3-8b", model__new="ttl_seconds")
    form = fields_of(page.content.decode())
    assert (form["m0"], form["m0-has"]) == (["qwen3-8b"], ["ttl_seconds"])
    page = operator_client.post(POLICY, form | {"m0-new": "kv_dtype", "add": "m0"})  # type: ignore[assignment]
    form = fields_of(page.content.decode())
    typed = {"m0-ttl_seconds": "1", "m0-ttl_seconds-unit": "h", "m0-kv_dtype": "bf16"}
    assert operator_client.post(POLICY, form | typed | {"publish": "yes"}).status_code == 302
    assert level().policy == {"models": {"qwen3-8b": {"ttl_seconds": 3600, "kv_dtype": "bf16"}}}


def test_a_models_values_are_changed_and_removed(operator_client: Client, acme: Organisation) -> None:
    publish(place(), models={"a": {"ttl_seconds": 60, "weight": 2.0}, "b": {"ttl_seconds": 60}})
    form = fields_of(send(operator_client, button="drop=m1").content.decode())
    page = operator_client.post(POLICY, form | {"drop": "m0-weight"})
    form = fields_of(page.content.decode())
    operator_client.post(POLICY, form | {"m0-ttl_seconds": "2", "publish": "yes"})
    assert level().policy == {"models": {"a": {"ttl_seconds": 120}}}


def test_a_name_that_is_none_is_told_and_no_script_of_it_runs(operator_client: Client, acme: Organisation) -> None:
    page = send(operator_client, button="add=model", model__name=HOSTILE, model__new="ttl_seconds")
    assert "is no name of a model" in words(page)
    assert HOSTILE not in page.content.decode()


def test_what_is_wrong_with_one_models_value_stands_beside_it(operator_client: Client, acme: Organisation) -> None:
    publish(place(), models={"a.b": {"ttl_seconds": 60}})
    form = form_of(operator_client) | {"m0-ttl_seconds": "3", "m0-ttl_seconds-unit": "d", "publish": "yes"}
    answer = operator_client.post(POLICY, form)
    assert "3 d is longer than “Maximum age”, which is 24 h." in told(answer, "m0-ttl_seconds")
    assert level().revision == 1


# The two levels above


def test_an_organisations_policy_is_the_same_page(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="editor")
    page = words(customer_client.get(WHOLE))
    assert "By default, blocks of acme live 5 min after their last use, as fp8" in page
    answer = send(customer_client, WHOLE, ttl_seconds="10")
    assert answer.status_code == 302
    assert level_of(Place(acme)).policy == {"ttl_seconds": 600}


def test_the_fleets_policy_says_how_many_namespaces_it_changes(operator_client: Client, acme: Organisation) -> None:
    make_namespace(make_organisation("globex"), "chat")
    publish(place("chat"), ttl_seconds=60)
    page = words(send(operator_client, "/fleet/policy", button="preview", ttl_seconds="10"))
    assert "Something else comes into force in 3 namespaces: acme/default, globex/default, globex/chat" in page
    send(operator_client, "/fleet/policy", ttl_seconds="10")
    assert level_of(FLEET).policy == {"ttl_seconds": 600}
    assert told(operator_client.get("/fleet/policy"), "ttl_seconds").startswith("10 min the fleet’s own")


# Revisions


def test_revisions_say_who_when_why_and_what_newest_first(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=60)
    send(operator_client, ttl_seconds="10", note=HOSTILE)
    page = operator_client.get("/orgs/acme/namespaces/default/revisions")
    said = words(page)
    assert "acme/default has 2 revisions" in said
    assert said.index("TTL: 1 min → 10 min") < said.index("TTL: inherited → 1 min")
    assert HOSTILE in said
    assert HOSTILE not in page.content.decode()
    assert "operator@luminet.example" in said
    assert "in force" in said


def test_which_operator_it_was_is_not_an_organisations_to_read(
    customer_client: Client, operator_client: Client, acme: Organisation
) -> None:
    join(acme, role="editor")
    send(operator_client, ttl_seconds="10")
    for path in ("/orgs/acme/namespaces/default/revisions", POLICY):
        page = words(customer_client.get(path))
        assert "an operator" in page
        assert "operator@luminet.example" not in page


def test_going_back_shows_what_it_would_publish_and_is_a_new_revision(
    operator_client: Client, acme: Organisation
) -> None:
    publish(place(), ttl_seconds=60)
    publish(place(), ttl_seconds=600, kv_dtype="bf16")
    path = "/orgs/acme/namespaces/default/revisions"
    page = words(operator_client.get(path, {"to": 1}))
    assert "Going back publishes what revision 1 said, as revision 3" in page
    assert "TTL old: − 10 min (this namespace’s own) new: + 1 min (this namespace’s own)" in page
    assert "Cold cache. bf16 → fp8 is a cold cache" in page
    assert level().revision == 2
    answer = operator_client.post(path, {"to": "1", "revision": "2", "note": "Too long"})
    assert (answer.status_code, level().revision, level().policy) == (302, 3, {"ttl_seconds": 60})
    newest = PolicyRevision.objects.get(level=level(), number=3)
    assert (newest.rolled_back_to, newest.note) == (1, "Too long")


def test_going_back_to_the_beginning_inherits_everything(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=60)
    path = "/orgs/acme/namespaces/default/revisions"
    assert "what was inherited before the first" in words(operator_client.get(path, {"to": 0}))
    operator_client.post(path, {"to": "0", "revision": "1"})
    assert (level().revision, level().policy) == (2, {})


def test_going_back_to_what_is_published_is_no_new_revision(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=60)
    publish(place(), ttl_seconds=600)
    publish(place(), ttl_seconds=60)
    answer: Any = operator_client.post("/orgs/acme/namespaces/default/revisions", {"to": "1", "revision": "3"})
    assert answer.status_code == 422
    assert "Nothing is changed: revision 1 says what is published." in words(answer)
    assert level().revision == 3


def test_a_way_back_from_a_page_that_is_too_old_changes_nothing(operator_client: Client, acme: Organisation) -> None:
    publish(place(), ttl_seconds=60)
    publish(place(), ttl_seconds=600)
    answer = operator_client.post("/orgs/acme/namespaces/default/revisions", {"to": "0", "revision": "1", "note": "x"})
    assert answer.status_code == 422
    assert "Revision 2 was published meanwhile" in words(answer)
    assert 'name="note" value="x"' in answer.content.decode()
    assert level().revision == 2


@pytest.mark.parametrize("to", ["99", "x", "", "-1", "9" * 40])
def test_there_is_no_way_back_to_what_never_was(operator_client: Client, acme: Organisation, to: str) -> None:
    publish(place(), ttl_seconds=60)
    path = "/orgs/acme/namespaces/default/revisions"
    assert operator_client.get(path, {"to": to, "before": to}).status_code == 200
    assert operator_client.post(path, {"to": to, "revision": "1"}).status_code == 422
    assert level().revision == 1


def test_a_viewer_reads_revisions_and_cannot_go_back(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="viewer")
    publish(place(), ttl_seconds=60)
    path = "/orgs/acme/namespaces/default/revisions"
    page = customer_client.get(path, {"to": 0})
    assert "TTL: inherited → 1 min" in words(page)
    assert "Going back publishes what was inherited" not in words(page)
    assert "?to=0#back" not in page.content.decode()
    assert customer_client.post(path, {"to": "0", "revision": "1"}).status_code == 403
    assert level().revision == 1


def test_a_member_goes_back_within_their_bounds_alone(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="editor")
    publish(place(), reserved_share=0.2)
    publish(place(), ttl_seconds=60)
    answer = customer_client.post("/orgs/acme/namespaces/default/revisions", {"to": "1", "revision": "2"})
    assert answer.status_code == 422
    assert "only an operator may change this" in words(answer)
    assert level().revision == 2


def test_many_revisions_come_page_by_page(operator_client: Client, acme: Organisation) -> None:
    for seconds in range(1, 46):
        publish(place(), ttl_seconds=seconds)
    path = "/orgs/acme/namespaces/default/revisions"
    first = operator_client.get(path).content.decode()
    assert f"{path}?before=25" in first
    assert "inherited" not in words(operator_client.get(path, {"before": 25}))
    last = words(operator_client.get(path, {"before": 5}))
    assert "The beginning: everything was inherited." in last
    assert "Older" not in last


# What if


def test_with_too_little_traffic_nothing_is_foretold(customer_client: Client, acme: Organisation) -> None:
    join(acme, role="editor")
    for path in (f"{POLICY}/what-if", f"{POLICY}/what-if/now"):
        page = words(customer_client.get(path))
        assert "Too little traffic to foretell another time to live" in page
        assert "0 prompt tokens were seen; 10,000 are the least that anything is foretold of." in page


@pytest.mark.parametrize("typed", ["never", HOSTILE, "0", "9" * 400])
def test_of_what_cannot_be_read_nothing_is_foretold(operator_client: Client, acme: Organisation, typed: str) -> None:
    page = operator_client.get(f"{POLICY}/what-if/now", {"ttl_seconds": typed, "ttl_seconds-unit": "min"})
    assert page.status_code == 200
    assert HOSTILE not in page.content.decode()
    assert "Foretold" not in words(page)


# Questions to the database


def test_how_many_agents_and_models_there_are_is_no_more_questions(operator_client: Client, acme: Organisation) -> None:
    def questions(number: int) -> list[int]:
        models = {f"m{one}": {"ttl_seconds": 60} for one in range(number)}
        publish(place(), models=models)
        for one in range(number):
            make_agent(f"agent-{number}-{one}")
        form = form_of(operator_client) | {"ttl_seconds": "10"}
        asks: list[Callable[[], Any]] = [
            lambda: operator_client.get(POLICY),
            lambda: operator_client.post(POLICY, form),
            lambda: operator_client.post(f"{POLICY}/check", form),
            lambda: operator_client.get("/orgs/acme/namespaces/default/revisions"),
        ]
        asked = []
        for ask in asks:
            with CaptureQueriesContext(connection) as queries:
                assert ask().status_code == 200
            asked.append(len(queries))
        return asked

    few = questions(2)
    assert questions(20) == few
    assert max(few) < 40


@pytest.mark.parametrize("path", [POLICY, f"{POLICY}/check"])
def test_invalid_draft_cannot_be_published(operator_client: Client, acme: Organisation, path: str) -> None:
    publish(place(), ttl_seconds=60)
    form = form_of(operator_client) | {"ttl_seconds": "9", "ttl_seconds-unit": "d"}
    answer = operator_client.post(path, form)
    page = answer.content.decode()
    assert "Not valid: 1 problem" in words(answer)
    assert "Cannot be published: correct the problem first." in words(answer)
    assert "No changes yet" not in words(answer)
    assert 'name="publish"' not in page
    assert re.search(r'<button[^>]* id="publish-button" disabled', page)
    corrected = operator_client.post(path, form | {"ttl_seconds": "6", "ttl_seconds-unit": "min"}).content.decode()
    assert 'name="publish" value="yes"' in corrected
    assert level().revision == 1


def test_draft_beyond_bounds_cannot_be_published(customer_client: Client, acme: Organisation) -> None:
    bounds_put(actor=SYSTEM, organisation=acme, bounds=Bounds(ttl_seconds=SecondsRange(max=600)), expected=None)
    join(acme, role="editor")
    answer = customer_client.post(POLICY, form_of(customer_client) | {"ttl_seconds": "3", "ttl_seconds-unit": "d"})
    assert "Cannot be published" in words(answer)
    assert 'name="publish"' not in answer.content.decode()
