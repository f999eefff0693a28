"""Forms that come when a session is over or renewed: nothing is done, and nothing typed is lost or shown to others."""

import html
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django import forms
from django.test import Client
from django.utils import timezone

from controlplane.dashboard.accounts.keeping import SECRETS, SECRETS_OF, Kept, author_signed, readable, sealed, unsealed
from controlplane.dashboard.accounts.refilling import is_of_page
from tenants.levels import Place
from tenants.models import Member, Namespace, Organisation, PolicyLevel, User
from tests.database.factories import PASSWORD, make_agent, make_operator, make_user, publish
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
HERE = "http://testserver"
POLICY = "/orgs/acme/namespaces/default/policy"
HOSTILE = "<script>alert(1)</script>"
FORM = re.compile(r"<form[^>]*method=\"post\".*?</form>", re.DOTALL)


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


@pytest.fixture
def browser(acme: Organisation) -> Client:
    """An operator's, which checks tokens as a server does."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_operator())
    return client


def inputs(page: str) -> dict[str, str]:
    """What a browser would send of that form, but for ticks."""
    found = {}
    for tag in re.findall(r"<input [^>]*>", page):
        name, value = re.search(r' name="([^"]+)"', tag), re.search(r' value="([^"]*)"', tag)
        is_off = ('type="checkbox"' in tag or 'type="radio"' in tag) and " checked" not in tag
        if name and not is_off and " disabled" not in tag:
            found[name[1]] = html.unescape(value[1]) if value else ""
    return found


def form_on(client: Client, path: str, having: str) -> dict[str, str]:
    page = client.get(path).content.decode()
    return inputs(next(one for one in FORM.findall(page) if having in one))


def sent(client: Client, path: str, fields: dict[str, Any], *, page: str = "") -> Any:
    return client.post(path, fields, headers={"Origin": HERE, "Referer": f"{HERE}{page or path}"})


def signed_in_again(client: Client, answer: Any, email: str = "operator@luminet.example") -> Any:
    """On the page that the refused form led to."""
    told = inputs(answer.content.decode())
    return sent(client, "/sign-in", {**told, "email": email, "password": PASSWORD})


def session_ends(client: Client) -> None:
    client.session.flush()


RENAME = 'name="edit-name"'


def test_who_sends_a_form_after_the_session_is_back_on_it_with_what_they_typed(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme & “Sons”"}
    session_ends(browser)
    refused = sent(browser, "/orgs/acme", typed)
    assert refused.status_code == 403
    assert "Your session has ended. Nothing was done yet." in words(refused)
    assert "Sons" not in refused.content.decode()
    page = signed_in_again(browser, refused)
    assert page.status_code == 200
    assert "Your session had ended when you sent this. Nothing was done yet." in words(page)
    assert Organisation.objects.get().name == "Acme"
    again = inputs(next(one for one in FORM.findall(page.content.decode()) if RENAME in one))
    assert again["edit-name"] == "Acme & “Sons”"
    assert sent(browser, "/orgs/acme", again).status_code == 302
    assert Organisation.objects.get().name == "Acme & “Sons”"


def test_a_wrong_password_on_the_way_loses_nothing(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    session_ends(browser)
    told = inputs(sent(browser, "/orgs/acme", typed).content.decode())
    wrong = sent(browser, "/sign-in", {**told, "email": "operator@luminet.example", "password": "wrong"})
    assert wrong.status_code == 422
    assert 'value="Acme Sons"' in signed_in_again(browser, wrong).content.decode()


def test_nobody_else_who_signs_in_there_sees_what_was_typed(browser: Client, acme: Organisation) -> None:
    other = make_user(email="other@luminet.example", is_operator=True)
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Between us"}
    session_ends(browser)
    answer = signed_in_again(browser, sent(browser, "/orgs/acme", typed), other.email)
    assert (answer.status_code, answer["Location"]) == (302, "/orgs/acme")
    assert b"Between us" not in browser.get("/orgs/acme").content


def test_who_signed_in_again_in_another_tab_is_shown_the_form_again(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    browser.cookies.pop("luminet_csrf")
    browser.force_login(User.objects.get())
    page = sent(browser, "/orgs/acme", typed)
    assert page.status_code == 403
    assert "You have signed in again since this page was opened. Nothing was done yet." in words(page)
    assert Organisation.objects.get().name == "Acme"
    again = inputs(next(one for one in FORM.findall(page.content.decode()) if RENAME in one))
    assert sent(browser, "/orgs/acme", again).status_code == 302
    assert Organisation.objects.get().name == "Acme Sons"


def test_a_form_of_somebody_elses_page_is_not_shown_to_who_is_signed_in_now(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Between us"}
    browser.force_login(make_user(email="other@luminet.example", is_operator=True))
    browser.cookies.pop("luminet_csrf", None)
    answer = sent(browser, "/orgs/acme", typed)
    assert answer.status_code == 403
    assert "Between us" not in answer.content.decode()


def test_who_signed_in_in_another_tab_may_still_use_the_page_that_keeps_it(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    session_ends(browser)
    told = inputs(sent(browser, "/orgs/acme", typed).content.decode())
    browser.cookies.pop("luminet_csrf")
    browser.force_login(User.objects.get())
    page = sent(browser, "/sign-in", {**told, "email": "x", "password": "y"})
    assert 'value="Acme Sons"' in page.content.decode()


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_what_another_site_sends_is_never_put_into_a_form(browser: Client, headers: dict[str, str]) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Planted"}
    browser.cookies.pop("luminet_csrf")
    assert b"Planted" not in browser.post("/orgs/acme", typed, headers=headers).content
    session_ends(browser)
    client = Client()
    answer = client.post("/orgs/acme", typed, headers=headers)
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in?next=/orgs/acme")


def test_the_policy_editor_shows_models_notes_and_what_was_published_meanwhile(
    browser: Client, acme: Organisation
) -> None:
    form = form_on(browser, POLICY, 'name="revision"')
    typed = {
        **form,
        "ttl_seconds": "20",
        "ttl_seconds-unit": "min",
        "note": HOSTILE,
        "m0": "qwen3-8b",
        "m0-has": "weight",
        "m0-weight": "2",
        "publish": "yes",
    }
    session_ends(browser)
    refused = sent(browser, POLICY, typed)
    namespace = Namespace.objects.select_related("organisation").get(slug="default")
    publish(Place(namespace.organisation, namespace), kv_dtype="int4")
    page = signed_in_again(browser, refused)
    text = page.content.decode()
    again = inputs(next(one for one in FORM.findall(text) if 'id="policy-form"' in one))
    assert (again["ttl_seconds"], again["note"], again["m0"], again["m0-weight"]) == ("20", HOSTILE, "qwen3-8b", "2")
    assert again["revision"] == "1"
    assert HOSTILE not in text
    assert "Revision 1 was published meanwhile" in words(page)
    assert 'id="publish-button"' in text
    assert PolicyLevel.objects.get(namespace=namespace).revision == 1


def test_a_button_of_the_editor_is_not_pressed_by_coming_back(browser: Client) -> None:
    form = form_on(browser, POLICY, 'name="revision"')
    typed = {**form, "ttl_seconds": "20", "ttl_seconds-unit": "min", "inherit": "ttl_seconds"}
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, POLICY, typed)).content.decode()
    again = inputs(next(one for one in FORM.findall(page) if 'id="policy-form"' in one))
    assert again["ttl_seconds"] == "20"


def test_a_form_that_stands_on_another_page_comes_back_there(browser: Client) -> None:
    form = form_on(browser, "/", 'id="ttl-fleet"')
    session_ends(browser)
    refused = sent(browser, "/fleet/ttl", {**form, "amount": "17", "unit": "min", "note": "why"}, page="/")
    page = signed_in_again(browser, refused).content.decode()
    again = next(one for one in FORM.findall(page) if 'id="ttl-fleet"' in one)
    assert 'value="17"' in again
    assert re.search(r'<option value="min" selected', again)


def test_a_form_whose_page_is_gone_is_shown_as_it_would_be_sent(browser: Client, acme: Organisation) -> None:
    pins = "/orgs/acme/namespaces/chat/pins"
    form = form_on(browser, pins, 'name="name"')
    session_ends(browser)
    refused = sent(browser, pins, {**form, "name": "Handbook", "prompt": "One\nTwo"})
    Namespace.objects.filter(slug="chat").update(deleted_at=timezone.now())
    page = signed_in_again(browser, refused)
    assert "Not sent yet" in words(page)
    assert "That page is not there as it was, or not yours any more; what you typed is here." in words(page)
    assert "Handbook" in words(page)
    gone = sent(browser, pins, inputs(page.content.decode()))
    assert gone.status_code == 404
    assert "Nothing was done. What you typed" in words(gone)


def test_text_with_line_breaks_and_ticks_come_back_as_they_were(browser: Client) -> None:
    form = form_on(browser, "/orgs/acme/limits", 'name="bounds-revision"')
    kept = {name: value for name, value in form.items() if name != "bounds-kv_dtype__may"}
    session_ends(browser)
    refused = sent(browser, "/orgs/acme/limits", {**kept, "bounds-ttl_seconds__max": "3 h", "bounds-weight__may": "on"})
    page = signed_in_again(browser, refused).content.decode()
    again = inputs(next(one for one in FORM.findall(page) if 'name="bounds-revision"' in one))
    assert again["bounds-ttl_seconds__max"] == "3 h"
    assert "bounds-weight__may" in again
    assert "bounds-kv_dtype__may" not in again


def test_what_is_too_long_is_said_to_be_so(browser: Client) -> None:
    form = form_on(browser, "/orgs/acme", RENAME)
    session_ends(browser)
    refused = sent(browser, "/orgs/acme", {**form, "edit-name": "x" * 300_000})
    assert refused.status_code == 403
    assert "It was too long to be kept here: go back in your browser to copy it" in words(refused)


def test_what_is_too_long_for_a_session_that_was_renewed_is_not_told_to_be_reloaded(browser: Client) -> None:
    form = form_on(browser, "/orgs/acme", RENAME)
    browser.cookies.pop("luminet_csrf")
    browser.force_login(User.objects.get())
    refused = sent(browser, "/orgs/acme", {**form, "edit-name": "x" * 300_000})
    assert refused.status_code == 403
    assert "Nothing was done. It was too long to be kept here: go back in your browser to copy it" in words(refused)
    assert "reload" not in words(refused)


def test_links_of_the_page_one_is_back_on_lead_where_they_led(browser: Client, acme: Organisation) -> None:
    members = "/orgs/acme/members"
    join(acme, email=make_user().email)
    assert 'href="?member=' in browser.get(members).content.decode()
    form = form_on(browser, members, 'value="invite"')
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, members, {**form, "email": "new@acme.example"})).content.decode()
    assert 'value="new@acme.example"' in page
    assert f'href="{members}?member=' in page
    assert 'href="?' not in page


def test_forms_of_the_page_one_is_back_on_are_sent_where_they_were(browser: Client, acme: Organisation) -> None:
    edit = "/orgs/acme/namespaces/chat/edit"
    form = form_on(browser, edit, 'id="rename-title"')
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, edit, {**form, "name": "Our chat"})).content.decode()
    assert 'value="Our chat"' in page
    bare = [tag for tag in re.findall(r"<form[^>]*>", page) if " action=" not in tag]
    assert bare == []
    assert page.count(f'action="{edit}"') == 2


@pytest.mark.parametrize(
    ("path", "having", "anchor"),
    [("/orgs/acme", RENAME, ""), (POLICY, 'name="revision"', "policy-form"), ("/", 'id="ttl-fleet"', "ttl-fleet")],
)
def test_the_note_leads_to_the_form(browser: Client, path: str, having: str, anchor: str) -> None:
    form = form_on(browser, path, having)
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, "/fleet/ttl" if path == "/" else path, form, page=path))
    text = page.content.decode()
    leads = re.search(r'<a href="#([^"]+)">To the form</a>', text)
    assert leads is not None
    assert leads[1].startswith(anchor)
    assert len(re.findall(rf'<form [^>]*id="{leads[1]}"', text)) == 1


REFUSED = {
    "a time to live": ("/", 'id="ttl-fleet"', "/fleet/ttl", {"amount": "nonsense"}),
    "an agent's deed": ("/fleet/agents/agent-1", "/revoke", "/fleet/agents/agent-1/revoke", {"confirm": "another"}),
    "a test request": ("/orgs/acme/start", "/start#outcome", "/orgs/acme/start", {"namespace": "nowhere"}),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_live_page_with_a_refused_form_says_so_to_its_scripts(browser: Client, refused: str) -> None:
    page, having, path, wrong = REFUSED[refused]
    make_agent()
    form = form_on(browser, page, having)
    assert b"data-typed" not in browser.get(page).content
    answer = sent(browser, path, form | wrong, page=page)
    assert answer.status_code == 422
    assert b"data-live=" in answer.content
    assert b"data-typed" in answer.content


def test_a_live_page_that_one_is_back_on_says_so_to_its_scripts(browser: Client) -> None:
    form = form_on(browser, "/", 'id="ttl-fleet"')
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, "/fleet/ttl", {**form, "amount": "17"}, page="/"))
    assert re.search(r'<div class="note[^>]* data-typed>', page.content.decode())


def test_a_format_that_is_not_offered_any_more_is_still_read(browser: Client) -> None:
    form = form_on(browser, "/settings/quality", 'name="confirm"')
    typed = {**form, "model": "m", "model_revision": "abc123", "kv_dtype": "int1", "note": "Ticket"}
    session_ends(browser)
    page = signed_in_again(browser, sent(browser, "/settings/quality", typed))
    assert "For this there is no place on the page any more: kv_dtype: int1" in words(page)


@pytest.mark.parametrize("told", ["Origin", "Referer"])
def test_behind_a_proxy_it_is_kept_as_django_itself_checks_it(browser: Client, told: str) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    session_ends(browser)
    proxied = {"Origin": "http://localhost:8000", "Referer": "http://localhost:8000/orgs/acme?find=x"}
    headers = proxied if told == "Origin" else {"Referer": proxied["Referer"]}
    refused = browser.post("/orgs/acme", typed, headers=headers)
    assert refused.status_code == 403
    kept = unsealed(inputs(refused.content.decode())["kept"], reader=User.objects.get().pk, now=time.time())
    assert kept is not None
    assert kept.page == "/orgs/acme?find=x"


@pytest.mark.parametrize("header", ["Origin", "Referer"])
def test_an_address_that_is_none_is_nobodys(browser: Client, header: str) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Planted"}
    browser.cookies.pop("luminet_csrf")
    answer = browser.post("/orgs/acme", typed, headers={header: "http://[nowhere"})
    assert answer.status_code == 403
    assert b"Planted" not in answer.content


def test_what_is_read_and_copied_is_all_that_was_typed() -> None:
    typed = {"strategy": ["canary"], "model_revision": ["abc123"], "note": ["why"]}
    hidden = {"seen": ["1"], "once": ["2"], "edit-revision": ["3"], "do": ["silence"], "publish": ["yes"], "x": [""]}
    assert dict(readable(Kept("/x", "/x", typed | hidden, 7))) == {name: one[0] for name, one in typed.items()}


def test_nothing_that_is_typed_is_named_as_what_a_page_hides() -> None:
    from controlplane.dashboard import urls  # noqa: F401  # with every form there is

    visible = {
        (form.__name__, name)
        for form in every(forms.Form)
        if form.__module__.startswith("controlplane.dashboard")
        for name, one in form.base_fields.items()
        if not one.widget.is_hidden
    }
    assert ("OverrideForm", "model_revision") in visible
    assert not [one for one in visible if is_of_page(one[1])]


def test_it_is_kept_for_an_hour_for_one_person_and_not_changed(browser: Client) -> None:
    kept = Kept("/orgs/acme", "/orgs", {"name": ["x", "\ud83d"], "b": []}, 7)
    now = time.time()
    told = sealed(kept, now=now)
    assert unsealed(told, reader=7, now=now + 3599) == kept
    assert unsealed(told, reader=8, now=now) is None
    assert unsealed(told, reader=7, now=now + timedelta(hours=1, seconds=1).total_seconds()) is None
    assert unsealed(told[:-4] + "AAA=", reader=7, now=now) is None
    for junk in ("", "x", "é", "A" * 100_000):
        assert unsealed(junk, reader=7, now=now) is None


def test_no_password_and_no_key_is_ever_kept(browser: Client, acme: Organisation) -> None:
    by = author_signed(User.objects.get().pk)
    client = Client()
    for path, fields in (
        ("/account/password", {"current": PASSWORD, "new": PASSWORD, "again": PASSWORD}),
        ("/orgs/acme/start", {"key": "lmk_secret", "namespace": "chat"}),
    ):
        answer = sent(client, path, {**fields, "form_by": by})
        told = inputs(answer.content.decode()).get("kept", "") if answer.status_code == 403 else ""
        kept = unsealed(told, reader=User.objects.get().pk, now=time.time())
        assert kept is None or not {*fields} & {*kept.typed} - {"namespace"}


def test_every_input_for_passwords_is_known_by_name() -> None:
    from controlplane.dashboard import urls  # noqa: F401  # with every form there is

    known = SECRETS | {name for names in SECRETS_OF.values() for name in names}
    found = {
        name
        for form in every(forms.Form)
        if form.__module__.startswith("controlplane.dashboard")
        for name, one in form.base_fields.items()
        if isinstance(one.widget, forms.PasswordInput)
    }
    assert found == known


def every(kind: type) -> set[Any]:
    return {one for each in kind.__subclasses__() for one in {each, *every(each)}}


# Parts, for HTMX


def test_a_part_says_that_the_session_has_ended_and_leaves_the_page_alone(browser: Client) -> None:
    form = form_on(browser, POLICY, 'name="revision"')
    session_ends(browser)
    for answer in (
        browser.post(f"{POLICY}/check", form, headers={"HX-Request": "true", "Origin": HERE}),
        browser.get("/fleet/now", headers={"HX-Request": "true"}),
    ):
        assert (answer.status_code, answer["HX-Reswap"]) == (286, "innerHTML")
        assert "HX-Refresh" not in answer
        assert "Your session has ended." in answer.content.decode()


def test_a_part_whose_page_is_older_than_the_session_says_so(browser: Client) -> None:
    form = form_on(browser, POLICY, 'name="revision"')
    browser.cookies.pop("luminet_csrf")
    browser.force_login(User.objects.get())
    answer = browser.post(f"{POLICY}/check", form, headers={"HX-Request": "true", "Origin": HERE})
    assert answer.status_code == 286
    assert "You have signed in again since this page was opened." in answer.content.decode()


def test_a_part_of_somebody_signed_out_says_that_the_session_has_ended_though_its_token_is_old(browser: Client) -> None:
    form = form_on(browser, POLICY, 'name="revision"')
    session_ends(browser)
    browser.cookies.pop("luminet_csrf")
    answer = browser.post(f"{POLICY}/check", form, headers={"HX-Request": "true", "Origin": HERE})
    assert answer.status_code == 286
    assert "Your session has ended." in answer.content.decode()
    assert "signed in again since" not in answer.content.decode()


# Roles that are taken while a page is open


def test_an_operator_who_is_none_any_more_is_told_and_keeps_the_text(browser: Client) -> None:
    policy = form_on(browser, "/fleet/policy", 'name="revision"') | {"note": "For the weekend", "publish": "yes"}
    User.objects.update(is_operator=False)
    refused = sent(browser, "/fleet/policy", policy)
    assert refused.status_code == 404
    assert "not yours to see. Nothing was done. What you typed" in words(refused)
    assert "note For the weekend" in words(refused)
    part = browser.get("/fleet/now", headers={"HX-Request": "true"})
    assert part.status_code == 286
    assert "not yours to see any more" in part.content.decode()
    assert browser.get("/fleet").status_code == 404


@pytest.fixture
def admin(acme: Organisation) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user())
    join(acme)
    return client


ENDS: dict[str, tuple[Any, int, str]] = {
    "a viewer now": (lambda: Member.objects.update(role="viewer"), 403, "You may not do this"),
    "no member any more": (lambda: Member.objects.all().delete(), 404, "There is no such page"),
    "suspended": (
        lambda: Organisation.objects.update(state="suspended"),
        403,
        "This organisation is suspended",
    ),
    "deleted": (
        lambda: Organisation.objects.update(state="deleted", deleted_at=timezone.now()),
        404,
        "There is no such page",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_whose_access_ends_while_a_form_is_open_is_told_and_keeps_the_text(admin: Client, end: str) -> None:
    takes, status, said = ENDS[end]
    policy = form_on(admin, POLICY, 'name="revision"') | {"ttl_seconds": "20", "note": "Longer chats", "publish": "yes"}
    rename = form_on(admin, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    takes()
    for path, typed, text in ((POLICY, policy, "Longer chats"), ("/orgs/acme", rename, "Acme Sons")):
        refused = sent(admin, path, typed)
        assert refused.status_code == status
        assert said in words(refused)
        assert "Nothing was done. What you typed" in words(refused)
        assert text in words(refused)
    assert not PolicyLevel.objects.exclude(revision=0).exists()
    assert Organisation.objects.get().name == "Acme"
    part = admin.post(f"{POLICY}/check", policy, headers={"HX-Request": "true", "Origin": HERE})
    if status == 404:
        assert part.status_code == 286
        assert "not there, or not yours to see any more" in part.content.decode()
        assert "acme" not in part.content.decode()
    else:
        assert 'name="publish"' not in part.content.decode()
        assert (
            "its policy can be read, not changed" if end == "suspended" else "Your role lets you read"
        ) in part.content.decode()


def test_only_whose_page_it_was_reads_what_was_typed_there(admin: Client) -> None:
    rename = form_on(admin, "/orgs/acme", RENAME) | {"edit-name": "Between us"}
    Member.objects.all().delete()
    rename["form_by"] = author_signed(User.objects.get().pk + 1)
    assert "Between us" not in sent(admin, "/orgs/acme", rename).content.decode()
