"""Forms that come when a session is over or renewed, or a role is gone: nothing is done, and the sender is told."""

import html
import re
from typing import Any

import pytest
from django import forms
from django.test import Client
from django.utils import timezone

from controlplane.dashboard.frame.problems import SECRETS
from tenants.models import Member, Organisation, PolicyLevel, User
from tests.database.factories import PASSWORD, make_agent, make_operator, make_user
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
HERE = "http://testserver"
POLICY = "/orgs/acme/namespaces/default/policy"
FORM = re.compile(r"<form[^>]*method=\"post\".*?</form>", re.DOTALL)
RENAME = 'name="edit-name"'


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


def session_ends(client: Client) -> None:
    client.session.flush()


def sign_in_again(client: Client, refused: Any, password: str = PASSWORD) -> Any:
    """Send the sign-in form of the page that a refused form led to."""
    fields = inputs(refused.content.decode())
    return sent(client, "/sign-in", {**fields, "email": "operator@luminet.example", "password": password})


def test_refused_form_leads_back_after_sign_in(browser: Client) -> None:
    typed = form_on(browser, "/", 'id="ttl-fleet"') | {"amount": "17", "note": "Long chats"}
    session_ends(browser)
    refused = sent(browser, "/fleet/ttl", typed, page="/?window=7d")
    assert refused.status_code == 403
    assert "Nothing was done, and what you typed was not kept." in words(refused)
    assert "Long chats" not in refused.content.decode()
    wrong = sign_in_again(browser, refused, password="wrong")
    answer = sign_in_again(browser, wrong)
    assert (wrong.status_code, answer.status_code, answer["Location"]) == (422, 302, "/?window=7d")
    assert not PolicyLevel.objects.exclude(revision=0).exists()


@pytest.mark.parametrize(
    "referer", ["", "https://evil.example//evil.example/x", "https://evil.example/\\evil.example", "http://[nowhere"]
)
def test_refused_form_never_leads_elsewhere(browser: Client, referer: str) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME)
    session_ends(browser)
    refused = browser.post("/orgs/acme", typed, headers={"Origin": HERE, "Referer": referer})
    assert refused.status_code == 403
    assert sign_in_again(browser, refused)["Location"] == "/"


def test_form_of_another_session_is_refused(browser: Client) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Acme Sons"}
    browser.cookies.pop("luminet_csrf")
    browser.force_login(make_user(email="other@luminet.example", is_operator=True))
    refused = sent(browser, "/orgs/acme", typed)
    assert refused.status_code == 403
    assert "Its page belongs to another session. Nothing was done" in words(refused)
    assert "Acme Sons" not in refused.content.decode()
    assert Organisation.objects.get().name == "Acme"


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
@pytest.mark.parametrize("path", ["/orgs/acme", "/orgs/nowhere", "/no/such/page"])
def test_forms_of_other_sites_are_not_shown(browser: Client, path: str, headers: dict[str, str]) -> None:
    typed = form_on(browser, "/orgs/acme", RENAME) | {"edit-name": "Planted"}
    browser.cookies.pop("luminet_csrf")
    assert b"Planted" not in browser.post(path, typed, headers=headers).content


def test_page_names_its_account_and_check(browser: Client) -> None:
    """static/luminet/session.js reads these."""
    page = browser.get("/orgs/acme").content.decode()
    (account,), (check,) = (re.findall(rf'<body [^>]*data-{name}="([^"]+)"', page) for name in ("account", "check"))
    assert account == str(User.objects.get().pk)
    assert f'data-account="{account}"' in browser.get(check).content.decode()
    session_ends(browser)
    sign_in = browser.get(check, follow=True).content.decode()
    assert "data-account" not in sign_in
    assert inputs(sign_in)["next"] == check


def test_secrets_are_never_shown(browser: Client) -> None:
    from controlplane.dashboard import urls  # noqa: F401  # with every form there is

    passwords = {
        name
        for form in every(forms.Form)
        if form.__module__.startswith("controlplane.dashboard")
        for name, field in form.base_fields.items()
        if isinstance(field.widget, forms.PasswordInput)
    }
    assert "password" in passwords
    assert passwords < SECRETS
    fields = form_on(browser, "/orgs/acme", RENAME) | dict.fromkeys(SECRETS - {"csrfmiddlewaretoken"}, "secret one")
    refused = sent(browser, "/orgs/nowhere", fields | {"note": "A reason"})
    assert "note A reason" in words(refused)
    assert "secret one" not in words(refused)
    assert fields["csrfmiddlewaretoken"] not in words(refused)


def every(kind: type) -> set[Any]:
    return {one for each in kind.__subclasses__() for one in {each, *every(each)}}


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
