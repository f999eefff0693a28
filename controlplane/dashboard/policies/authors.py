"""Author and time of a revision for conflict messages. Only operators see which operator it was."""

from tenants.actor import Actor
from tenants.models import PolicyLevel, PolicyRevision

OPERATOR = "an operator"  # shown to an organisation's members instead of the operator's name


def author_name(revision: PolicyRevision, actor: Actor) -> str:
    return OPERATOR if revision.author_is_operator and not actor.is_operator else revision.author


def published_by(level: PolicyLevel, number: int, actor: Actor) -> str:
    """Return "by kim@acme.example, 24 Nov 2026 17:20 UTC"; empty if there is no such revision."""
    revision = level.revisions.filter(number=number).first()
    return "" if revision is None else f"by {author_name(revision, actor)}, {revision.at:%-d %b %Y %H:%M} UTC"


def was_published(level: PolicyLevel, number: int, actor: Actor) -> str:
    """Return the beginning of a conflict message."""
    return f"Revision {number} was published meanwhile {published_by(level, number, actor)}".strip()
