"""Write a join token for each agent and gateway of the demo that has not joined yet.

A token is bound to the agent's name, so an agent that lost its credentials rejoins under that name. A revoked agent
stays out.
"""

from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from controlplane.demo.home import DemoHome, Joiner
from controlplane.fleet.join_tokens import join_token_create, join_token_revoke
from controlplane.fleet.models import Agent, JoinToken
from engine_agent.contracts.files import write_private
from tenants.actor import Actor
from tenants.crypto import secret_hash
from tenants.services.namespaces import default_group

CREDENTIALS = "credentials"  # the file in which a member stores its credentials after it joined
LASTS = timedelta(days=1)  # a first start may wait for a download


def demo_fleet_seed(home: DemoHome, *, actor: Actor) -> None:
    """Write a new token file for each member that needs one, before the commit: an uncommitted token opens nothing."""
    for joiner in home.joiners:
        agent = Agent.objects.filter(pk=joiner.name).first()
        has_joined = agent is not None and (joiner.home / CREDENTIALS).exists()
        if not has_joined and (agent is None or agent.revoked_at is None):
            _token_seed(joiner, actor)


def _token_seed(joiner: Joiner, actor: Actor) -> None:
    name = joiner.name
    living = JoinToken.objects.filter(agent=name, revoked_at=None, uses_left__gt=0, expires_at__gt=timezone.now())
    if living.filter(hash=_hash_in(joiner.join_token)).exists():
        return
    for token in living.filter(created_by=actor.name):
        join_token_revoke(actor=actor, token=token)
    _, secret = join_token_create(
        actor=actor, name=f"demo, {name}", group=default_group(), expires_in=LASTS, kind=joiner.kind, agent=name
    )
    joiner.home.mkdir(mode=0o700, exist_ok=True)
    write_private(joiner.join_token, secret.secret + "\n")


def _hash_in(file: Path) -> bytes:
    """Return the hash of the token in the file. Without a readable file, hash the empty string, which is no token."""
    try:
        return secret_hash(file.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return secret_hash("")
