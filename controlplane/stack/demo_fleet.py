"""How the demo's agents and gateway get in: a join token of its own for each that has not joined yet.

It is bound to the name, so whoever has lost its credentials becomes the same agent again. Who was revoked stays out.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from controlplane.fleet.join_tokens import join_token_create, join_token_revoke
from controlplane.fleet.models import Agent, JoinToken
from controlplane.stack.config import AGENTS, GATEWAY, StackConfig, join_token_file
from engine_agent.contracts.files import write_private
from tenants.actor import Actor
from tenants.crypto import secret_hash
from tenants.services.namespaces import default_group

CREDENTIALS = "credentials"  # the file in which whoever has joined keeps its own
LASTS = timedelta(days=1)  # a first start may wait for a download


def demo_fleet_seed(config: StackConfig, *, actor: Actor) -> None:
    """A fresh token beside whoever needs one, written before the commit: one that is not committed opens nothing."""
    for name, kind, home in _members(config):
        agent = Agent.objects.filter(pk=name).first()
        has_joined = agent is not None and (home / CREDENTIALS).exists()
        if not has_joined and (agent is None or agent.revoked_at is None):
            _token_seed(name, kind, home, actor)


def _members(config: StackConfig) -> Iterator[tuple[str, str, Path]]:
    if config.engine_port is not None:
        yield from ((name, "engine", config.home / name) for name in AGENTS)
        yield GATEWAY, "gateway", config.gateway


def _token_seed(name: str, kind: str, home: Path, actor: Actor) -> None:
    living = JoinToken.objects.filter(agent=name, revoked_at=None, uses_left__gt=0, expires_at__gt=timezone.now())
    if living.filter(hash=_hash_in(join_token_file(home))).exists():
        return
    for lost in living.filter(created_by=actor.name):
        join_token_revoke(actor=actor, token=lost)
    _, secret = join_token_create(
        actor=actor, name=f"demo, {name}", group=default_group(), expires_in=LASTS, kind=kind, agent=name
    )
    home.mkdir(mode=0o700, exist_ok=True)
    write_private(join_token_file(home), secret.secret + "\n")


def _hash_in(file: Path) -> bytes:
    """Of the token in it; of nothing where there is none, which is no token's."""
    try:
        return secret_hash(file.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return secret_hash("")
