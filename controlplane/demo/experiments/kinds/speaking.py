"""A client of the gateway for one organisation of the demo, with a key that is revoked when the experiment ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from controlplane.dashboard.experiments.asking import Answer, Gateway
from controlplane.dashboard.experiments.short_keys import short_key
from controlplane.dashboard.experiments.texts import fresh_text, words_for
from controlplane.demo.experiments.trials import NotPossible
from controlplane.fleet.selectors import gateway_address
from tenants.access import OPERATE, namespace_for, organisation_for
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.models import Namespace, Organisation

# The demo's traffic uses none of these namespaces, so everything counted there comes from the experiment.
FIRST: Final = ("globex", "default")
SECOND: Final = ("initech", "default")
POLICY: Final = ("globex", "experiments")
LONG_TOKENS: Final = 6_000
ANSWER_SECONDS: Final = 120.0  # a busy laptop takes long to compute a long prompt
Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Voice:
    organisation: Organisation
    namespace: Namespace
    gateway: Gateway
    model: str

    def ask(self, messages: Messages) -> Answer:
        return self.gateway.chat(self.model, messages, namespace=self.namespace.slug)


def place_of(actor: Actor, slugs: tuple[str, str]) -> tuple[Organisation, Namespace]:
    org, ns = slugs
    try:
        organisation = organisation_for(actor, org, OPERATE)
        return organisation, namespace_for(actor, organisation, ns)
    except NotFound:
        raise NotPossible(f"The demo’s namespace {org}/{ns} is not there any more.") from None


@contextmanager
def speaking(actor: Actor, slugs: tuple[str, str]) -> Iterator[Voice]:
    organisation, namespace = place_of(actor, slugs)
    address = gateway_address()
    if address is None:
        raise NotPossible("No gateway has joined this fleet yet.")
    with short_key(actor, organisation) as secret:
        gateway = Gateway(address, secret, ANSWER_SECONDS)
        yield Voice(organisation, namespace, gateway, gateway.model())


def long_prompt(tokens: int = LONG_TOKENS) -> Messages:
    return [
        {"role": "system", "content": fresh_text(words_for(tokens))},
        {"role": "user", "content": "What is this about?"},
    ]
