"""Every page as everybody who may come to it: what is not yours is not there, and nobody is let in unasked."""

import re
from collections.abc import Iterable, Iterator

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from controlplane.dashboard import urls
from controlplane.demo import urls as demo_urls
from tenants.models import Member, Organisation, User
from tests.web.api import make_organisation
from tests.web.dashboard_pages import ALL_PAGES, DEMO_PAGES, PAGES, Page
from tests.web.demonstration import demonstration

pytestmark = pytest.mark.django_db
INSIDE = [one for one in ALL_PAGES if one.audience != "outside" and one.kind != "deed"]
OPERATORS = [one for one in ALL_PAGES if one.audience == "operators"]
MEMBERS = [one for one in ALL_PAGES if one.audience == "members"]
REFUSED = (403, 404)


def named(patterns: Iterable[object]) -> Iterator[str]:
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from named(one.url_patterns)
        elif isinstance(one, URLPattern) and one.name:
            yield one.name


def address(one: Page) -> str:
    return reverse(one.view, args=one.arguments)


@pytest.fixture(autouse=True)
def demo() -> Iterator[None]:
    """It has all pages that there are."""
    with demonstration():
        yield


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme")


@pytest.fixture
def stranger(customer_client: Client, acme: Organisation) -> Client:
    """Belongs to another organisation."""
    other, user = make_organisation("globex"), User.objects.get(email="someone@acme.example")
    Member.objects.create(organisation=other, email=user.email, role="admin", user=user, joined_at="2026-01-01T00:00Z")
    return customer_client


def test_every_address_is_in_the_list_once() -> None:
    assert sorted(named(urls.urlpatterns)) == sorted(one.view for one in PAGES)
    assert sorted(named(demo_urls.urlpatterns)) == sorted(one.view for one in DEMO_PAGES)


def test_nobody_sees_anything_without_signing_in(client: Client, acme: Organisation, subtests: pytest.Subtests) -> None:
    assert INSIDE
    for page in INSIDE:
        with subtests.test(msg=page.view):
            answer = client.get(address(page))
            if page.kind == "part":  # a page that is open says so in its place, and keeps what is typed on it
                told = re.sub(r"<[^>]+>", "", answer.content.decode()).strip()
                assert answer.status_code == 286
                assert told == "Your session has ended. Sign in again, then go on here: what you typed stays."
            else:
                assert answer.status_code == 302
                assert answer.headers["Location"].startswith(f"{reverse('sign-in')}?next=")


def test_what_is_for_operators_is_not_there_for_customers(stranger: Client, subtests: pytest.Subtests) -> None:
    assert OPERATORS
    for page in OPERATORS:
        with subtests.test(msg=page.view):
            answer = asked(stranger, page)
            assert answer.status_code == 404
            assert b"There is no such page" in answer.content


def test_another_organisation_looks_as_if_it_did_not_exist(stranger: Client, subtests: pytest.Subtests) -> None:
    assert MEMBERS
    for page in MEMBERS:
        with subtests.test(msg=page.view):
            nowhere = Page(page.view, page.audience, page.kind, ("nobody-here", *page.arguments[1:]))
            answers = [asked(stranger, each) for each in (page, nowhere)]
            assert [answer.status_code for answer in answers] == [404, 404]
            shown = answers[0].content.decode().replace("someone@acme.example", "").replace(address(page), "")
            assert "acme" not in shown


def asked(client: Client, page: Page) -> HttpResponse:
    """Return a page, or the answer to the request that does something."""
    return client.post(address(page)) if page.kind == "deed" else client.get(address(page))  # type: ignore[return-value]
