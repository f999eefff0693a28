"""Who published a revision and when, for whoever was slower. Which operator it was is the operators' to know."""

from tenants.actor import Actor
from tenants.models import PolicyLevel, PolicyRevision

OPERATOR = "an operator"  # what an organisation reads instead of a name


def author_name(revision: PolicyRevision, actor: Actor) -> str:
    return OPERATOR if revision.author_is_operator and not actor.is_operator else revision.author


def published_by(level: PolicyLevel, number: int, actor: Actor) -> str:
    """ "by kim@acme.example, 24 Nov 2026 17:20 UTC"; empty where there is no such revision."""
    found = level.revisions.filter(number=number).first()
    return "" if found is None else f"by {author_name(found, actor)}, {found.at:%-d %b %Y %H:%M} UTC"


def was_published(level: PolicyLevel, number: int, actor: Actor) -> str:
    """The beginning of what whoever was slower reads."""
    return f"Revision {number} was published meanwhile {published_by(level, number, actor)}".strip()
