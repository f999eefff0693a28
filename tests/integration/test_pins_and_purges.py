"""Pins hold what nobody reads back; a purge is a new epoch with a new key, and nothing of the old one is left."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.actor import SYSTEM
from tenants.crypto import Unreadable, unseal
from tenants.errors import InvalidFields, LimitReached, Taken
from tenants.limits import Limits
from tenants.models import AuditRecord, Namespace, NamespaceKey, Operation, Pin
from tenants.services.namespace_keys import key_open
from tenants.services.operations import purge
from tenants.services.organisations import limits_put
from tenants.services.pins import MAX_CONTENT_BYTES, pin_content, pin_create, pin_delete
from tests.database.factories import make_agent, make_namespace, make_pin
from tests.support.threads import at_once, failures
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db
at_once_on_the_database = pytest.mark.django_db(transaction=True)
CONTENT = "You answer from the handbook."


@pytest.fixture
def chat(db: None) -> Namespace:
    return make_namespace(make_organisation())


def living_key(namespace: Namespace) -> NamespaceKey:
    return NamespaceKey.objects.get(namespace=namespace, retired_at=None)


def opened(namespace: Namespace) -> bytes:
    key = living_key(namespace)
    assert key.sealed is not None
    return key_open(namespace.pk, key.epoch, key.sealed)


# Pins


def test_what_a_pin_holds_is_sealed_and_opens_for_agents(chat: Namespace) -> None:
    pin = make_pin(chat)
    assert CONTENT.encode() not in bytes(pin.sealed_content)
    assert (pin_content(Pin.objects.get()), pin.content_bytes) == (CONTENT, len(json.dumps(CONTENT)))


CONTENTS = {
    "prompt": "名前 \u0000",
    "token_ids": [0, 2**32 - 1],
    "messages": [{"role": "system", "content": [{"type": "text"}]}],
}


@pytest.mark.parametrize(("kind", "content"), CONTENTS.items())
def test_every_kind_of_content_comes_back_as_it_was(chat: Namespace, kind: str, content: Any) -> None:
    made = pin_create(actor=SYSTEM, namespace=chat, name="p", model="m", content_kind=kind, content=content)
    assert pin_content(Pin.objects.get(pk=made.pk)) == content


def test_a_pins_content_opens_in_no_other_pin_and_no_other_namespace(chat: Namespace) -> None:
    first, second = make_pin(chat, "first"), make_pin(chat, "second", "other")
    Pin.objects.filter(pk=second.pk).update(sealed_content=first.sealed_content)
    with pytest.raises(Unreadable):
        pin_content(Pin.objects.get(pk=second.pk))
    Pin.objects.filter(pk=first.pk).update(namespace=make_namespace(chat.organisation, "elsewhere"))
    with pytest.raises(Unreadable):
        pin_content(Pin.objects.get(pk=first.pk))


def test_rest_never_gives_content_back(acme: Api) -> None:
    path = "/orgs/acme/namespaces/default/pins"
    made = acme.post(path, {"name": "handbook", "model": "m", "prompt": CONTENT})
    assert (made.status_code, said(made)["content"]) == (201, "prompt")
    assert CONTENT not in made.content.decode() + acme.get(path).content.decode()


def test_a_name_is_used_once_in_a_namespace(chat: Namespace) -> None:
    make_pin(chat)
    with pytest.raises(Taken, match="'handbook' is the name of another pin"):
        make_pin(chat)
    make_pin(make_namespace(chat.organisation, "other"))


def test_content_that_is_too_long_and_a_moment_that_has_passed_are_refused(chat: Namespace) -> None:
    make_pin(chat, "just", "x" * (MAX_CONTENT_BYTES - 2))
    with pytest.raises(InvalidFields, match="prompt: has 524289 bytes, 524288 is the most"):
        make_pin(chat, "more", "x" * (MAX_CONTENT_BYTES - 1))
    with pytest.raises(InvalidFields, match="has passed"):
        pin_create(actor=SYSTEM, namespace=chat, name="late", model="m", content_kind="prompt", content="x",
                   expires_at=timezone.now() - timedelta(seconds=1))  # fmt: skip


def test_an_organisation_has_as_many_pins_as_its_limit_over_all_namespaces(chat: Namespace) -> None:
    limits_put(actor=SYSTEM, organisation=chat.organisation, limits=Limits(max_pins=2), expected=None)
    make_pin(chat)
    make_pin(make_namespace(chat.organisation, "other"))
    with pytest.raises(LimitReached):
        make_pin(chat, "third")


def test_a_pin_is_deleted_once(chat: Namespace) -> None:
    pin = make_pin(chat)
    for _ in range(2):
        pin_delete(actor=SYSTEM, pin=Pin(pk=pin.pk, namespace=chat, name=pin.name, model=pin.model))
    assert AuditRecord.objects.filter(verb="pin.delete").count() == 1


@at_once_on_the_database
def test_the_limit_holds_for_pins_made_at_once() -> None:
    chat = make_namespace(make_organisation())
    limits_put(actor=SYSTEM, organisation=chat.organisation, limits=Limits(max_pins=2), expected=None)
    outcomes = at_once(*[lambda n=n: make_pin(chat, f"p{n}") for n in range(5)])
    assert failures(outcomes) == ["LimitReached"] * 3


# Purges


def test_a_purge_is_the_next_epoch_with_another_key(chat: Namespace) -> None:
    before = opened(chat)
    purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat)
    chat.refresh_from_db()
    assert (chat.epoch, living_key(chat).epoch) == (2, 2)
    assert opened(chat) != before
    assert len(opened(chat)) == 32


def test_the_key_of_a_past_epoch_is_erased_not_just_unused(chat: Namespace) -> None:
    purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat)
    past = NamespaceKey.objects.get(namespace=chat, epoch=1)
    assert past.sealed is None
    assert past.retired_at is not None


def test_a_namespaces_purge_leaves_the_others_alone(chat: Namespace) -> None:
    default = chat.organisation.namespaces.get(slug="default")
    before = opened(default)
    purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat)
    assert opened(default) == before


def test_an_organisations_purge_reaches_all_of_its_namespaces_and_no_others(chat: Namespace) -> None:
    other = make_organisation("globex").namespaces.get()
    operation = purge(actor=SYSTEM, organisation=chat.organisation)
    epochs = dict(Namespace.objects.values_list("pk", "epoch"))
    assert epochs.pop(other.pk) == 1
    assert set(epochs.values()) == {2}
    assert (operation.scope, operation.namespace) == ("acme", None)


def test_no_two_namespaces_have_the_same_key(chat: Namespace) -> None:
    keys = [opened(one) for one in Namespace.objects.all()]
    assert len(set(keys)) == len(keys) == 2


def test_a_namespaces_key_opens_for_no_other_namespace_and_no_other_epoch(chat: Namespace) -> None:
    sealed = living_key(chat).sealed
    assert sealed is not None
    for namespace_id, epoch in ((chat.pk + 1, 1), (chat.pk, 2)):
        with pytest.raises(Unreadable):
            key_open(namespace_id, epoch, sealed)
    with pytest.raises(Unreadable):
        unseal(sealed, place=f"pin {chat.pk}")


def test_pins_survive_a_purge_unless_they_are_included(chat: Namespace) -> None:
    make_pin(chat)
    make_pin(chat.organisation.namespaces.get(slug="default"))
    purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat)
    assert Pin.objects.count() == 2
    purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat, include_pins=True)
    assert Pin.objects.get().namespace.slug == "default"


def test_a_purge_without_agents_is_done_at_once_and_with_agents_when_they_say_so(chat: Namespace) -> None:
    done = purge(actor=SYSTEM, organisation=chat.organisation)
    assert (done.state, done.finished_at is not None) == ("done", True)
    make_agent("agent-1")
    running = purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat)
    assert (running.state, running.finished_at, running.awaited_agents) == ("running", None, ["agent-1"])


@at_once_on_the_database
def test_of_purges_at_once_each_is_an_epoch_of_its_own() -> None:
    chat = make_namespace(make_organisation())
    deeds = [lambda: purge(actor=SYSTEM, organisation=chat.organisation, namespace=chat),
             lambda: purge(actor=SYSTEM, organisation=chat.organisation)]  # fmt: skip
    assert failures(at_once(*deeds * 3)) == []
    chat.refresh_from_db()
    assert (chat.epoch, living_key(chat).epoch, Operation.objects.count()) == (7, 7, 6)
    assert NamespaceKey.objects.filter(namespace=chat, sealed__isnull=False).count() == 1
