"""Every form there is, filled with what nobody should type: told beside its field, kept as typed, shown as text.

Forms are found on the pages themselves, so that one that is new is in here the day it is there.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from tenants.levels import Place
from tenants.models import Namespace, Organisation, Pin
from tests.database.factories import (
    make_agent,
    make_group,
    make_join_token,
    make_operator,
    make_pin,
    make_user,
    publish,
)
from tests.database.undoing import undone
from tests.fleet.alerts import make_alert, make_alert_rule
from tests.fleet.rollouts import make_canary
from tests.web.api import make_key, make_operator_token, make_organisation
from tests.web.dashboard_pages import NOWHERE, PAGES, Page
from tests.web.pages import join

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
HOSTILE: dict[str, str] = {
    "a script": SCRIPT,
    "quotes": "\"'><img src=x onerror=alert(1)>",
    "NUL": "a\0b",
    "half a surrogate pair": "a\ud83db",
    "written backwards": "a\u202eb\u200fc",
    "long": "x" * 10_000,
    "a megabyte": "y" * 2**20,
    "nothing": "",
    "spaces": "   ",
    "a template": "{{ 7|add:7 }}{% now %}",
}
RAW = (SCRIPT, "<img src=x")
TYPABLE = frozenset({"", "text", "email", "search", "url", "number", "date", "datetime-local", "tel"})
PAGES_OWN = frozenset({"csrfmiddlewaretoken", "form_by", "username"})  # the last for password managers alone
NOT_SHOWN = frozenset({"sign-out", "stats-csv", "audit-export", "invitation", "reset", "sign-in"})
# What else has to be right, where a page offers nothing, for one field after the other to be judged by itself.
RIGHT: dict[str, str] = {
    "slug": "globex",
    "name": "Globex",
    "email": "kim@acme.example",
    "amount": "5",
    "prompt": "You answer from the handbook.",
    "model": "qwen3-8b",
}


@dataclass(frozen=True, slots=True)
class Form:
    """`typed`: names of what people type into; `fields` is all that a browser would send as it stands there."""

    page: str
    action: str
    fields: Mapping[str, list[str]]
    typed: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.action} {self.fields.get('do', [''])[0]} {', '.join(self.typed)}"


@pytest.fixture
def world(db: None) -> Client:
    """One of everything that has a form, and an operator."""
    client = Client(raise_request_exception=False)
    operator = make_operator()
    client.force_login(operator)
    acme = make_organisation("acme", "chat")
    make_user()
    join(acme)
    make_key(acme)
    make_operator_token(operator)
    make_group("gpu")
    make_join_token()
    for number in range(1, 5):
        make_agent(f"agent-{number}")
    default = acme.namespaces.get(slug="default")
    make_pin(default)
    publish(Place(acme, default), ttl_seconds=600)
    make_alert(make_alert_rule())
    make_canary(Place(acme, Namespace.objects.select_related("organisation").get(pk=default.pk)))
    return client


def addresses() -> Iterator[str]:
    from controlplane.alerts.models import Alert, AlertRule
    from controlplane.rollouts.models import Rollout

    real: dict[str, Any] = {
        "pin-end": Pin.objects.get().pk,
        "alert": Alert.objects.get().public_id,
        "alert-rule": AlertRule.objects.get().public_id,
        "rollout": Rollout.objects.get().pk,
    }
    for one in PAGES:
        if one.kind == "page" and one.view not in NOT_SHOWN and (NOWHERE not in one.arguments or one.view in real):
            yield address(one, real)
    yield f"{reverse('namespace-revisions', args=['acme', 'default'])}?to=0"


def address(one: Page, real: Mapping[str, Any]) -> str:
    return reverse(one.view, args=[str(real[one.view]) if each == NOWHERE else each for each in one.arguments])


def forms_of(client: Client) -> list[Form]:
    found: dict[str, Form] = {}
    for page in addresses():
        answer = client.get(page)
        if answer.status_code == 200:
            for one in forms_on(page, answer.content.decode()):
                found.setdefault(one.name, one)
    return [one for one in found.values() if one.typed]


def forms_on(page: str, text: str) -> Iterator[Form]:
    for tag, body in re.findall(r"(<form[^>]*method=\"post\"[^>]*>)(.*?)</form>", text, re.DOTALL):
        action = re.search(r' action="([^"]*)"', tag)
        fields: dict[str, list[str]] = {}
        typed = []
        for name, kind, value in controls(body):
            fields.setdefault(name, []).append(value)
            if kind in TYPABLE:
                typed.append(name)
        path = urlsplit(html.unescape(action[1]) if action else page).path
        yield Form(page, path, fields, tuple(dict.fromkeys(typed)))


def controls(body: str) -> Iterator[tuple[str, str, str]]:
    for tag in re.findall(r"<input [^>]*>|<textarea.*?</textarea>|<select.*?</select>", body, re.DOTALL):
        head = tag.partition(">")[0]
        name, kind = re.search(r' name="([^"]+)"', head), re.search(r' type="([^"]*)"', head)
        if name is None or " disabled" in head or name[1] in PAGES_OWN:
            continue
        if tag.startswith("<select"):
            chosen = re.search(r'value="([^"]*)" selected', tag) or re.search(r'value="([^"]*)"', tag)
            yield name[1], "select", html.unescape(chosen[1]) if chosen else ""
        elif tag.startswith("<textarea"):
            yield name[1], "text", html.unescape(tag.partition(">")[2].removesuffix("</textarea>").strip())
        elif not (kind and kind[1] in ("checkbox", "radio")) or " checked" in head:
            value = re.search(r' value="([^"]*)"', head)
            yield name[1], kind[1] if kind else "", html.unescape(value[1]) if value else ""


def send(client: Client, form: Form, typed: Mapping[str, str]) -> Any:
    """As bytes: what is no text at all is sent, too."""
    fields = {name: values for name, values in form.fields.items() if name not in typed}
    fields |= {name: [value] for name, value in typed.items()}
    if "note" in fields and "ttl_seconds" in fields:
        fields["publish"] = ["yes"]
    body = urlencode(fields, doseq=True, errors="surrogatepass")
    return client.post(form.action, body, content_type="application/x-www-form-urlencoded")


def is_shown(value: str, page: str) -> bool:
    """As a browser would have it: undecodable bytes are marks, and what surrounds a value is the page's."""
    kept = value.encode(errors="surrogatepass").decode(errors="replace").strip()
    return kept in html.unescape(page)


def test_no_form_breaks_and_each_keeps_what_was_typed(world: Client) -> None:
    forms = forms_of(world)
    assert len(forms) > 25, [one.name for one in forms]
    wrong = []
    for form in forms:
        for what, value in HOSTILE.items():
            with undone():
                # A body of more than a megabyte never comes as far as this: tests of its limit are elsewhere.
                names = form.typed[:1] if what == "a megabyte" else form.typed
                answer = send(world, form, dict.fromkeys(names, value))
            page = answer.content.decode()
            if answer.status_code not in (200, 302, 422):  # 200: what only looks at something, as the linter does
                wrong.append((form.name, what, answer.status_code))
            if any(raw in page for raw in RAW):
                wrong.append((form.name, what, "not escaped"))
            if answer.status_code == 422 and 'class="entry__error"' not in page and 'role="alert"' not in page:
                wrong.append((form.name, what, "does not say what is wrong"))
            # What confirms is a name: of more than its input takes, so much is kept.
            kept = value[:200] if form.typed == ("confirm",) else value
            if answer.status_code == 422 and value.strip() and not is_shown(kept, page):
                wrong.append((form.name, what, "lost what was typed"))
    assert not wrong, "; ".join(map(str, wrong))


class Refusals(HTMLParser):
    """Refusals that stand beside a field, by the ids around them; ids, and those that fields say explain them."""

    VOID = frozenset({"input", "br", "meta", "link", "hr", "img", "use", "path", "rect", "wbr", "circle", "line"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inside: list[tuple[str, str]] = []
        self.refusals: list[set[str]] = []
        self.ids: set[str] = set()
        self.pointed: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.ids.add(told.get("id", ""))
        self.pointed.update(told.get("aria-describedby", "").split())
        if tag not in self.VOID:
            self.inside.append((tag, told.get("id", "")))
        if "entry__error" in told.get("class", "").split():
            self.refusals.append({one for _, one in self.inside if one})

    def handle_endtag(self, tag: str) -> None:
        while self.inside and tag in [one for one, _ in self.inside] and self.inside.pop()[0] != tag:
            pass


def test_what_is_refused_beside_a_field_is_what_the_field_says_explains_it(world: Client) -> None:
    wrong, told = [], 0
    for form in forms_of(world):
        for value in ("", "{{ 7|add:7 }}", "x" * 10_000):
            with undone():
                answer = send(world, form, dict.fromkeys(form.typed, value))
            found = Refusals(answer.content.decode())
            told += len(found.refusals)
            wrong += [f"{form.name}: no field says {sorted(ids)}" for ids in found.refusals if not ids & found.pointed]
            wrong += [f"{form.name}: {one} is not there" for one in found.pointed - found.ids]
    assert told > 50
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_a_form_of_ten_thousand_fields_is_refused_before_anybody_reads_it(world: Client) -> None:
    for form in forms_of(world):
        many = {f"field-{number}": "x" for number in range(10_000)}
        answer = send(world, form, many)
        assert answer.status_code == 400, form.name
        assert b"This request makes no sense" in answer.content


def test_hostile_words_are_text_on_every_page_that_shows_them_later(world: Client) -> None:
    """One field after the other, with everything else right, and what is taken stays."""
    taken, pages = 0, list(addresses())
    for form in forms_of(world):
        right = {name: RIGHT[key] for name in form.typed if (key := name.rpartition("-")[2]) in RIGHT}
        right = {name: value for name, value in right.items() if not form.fields[name][0]}
        for name in form.typed:
            for value in RAW:
                answer = send(world, form, {**right, name: f"x {value}"})
                assert answer.status_code < 500, (form.name, name)
                assert not any(raw in answer.content.decode() for raw in RAW), (form.name, name)
                taken += answer.status_code == 302
    assert taken >= 10
    for page in pages:
        text = world.get(page).content.decode()
        assert not any(raw in text for raw in RAW), page
    assert Organisation.objects.filter(slug="acme", name__contains="<").exists()
