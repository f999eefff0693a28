"""Wording for an organisation's members. Pure."""

from controlplane.dashboard.frame.words import MAY, counted
from tenants.models import Member


def may_words(member: Member) -> str:
    return MAY[member.role]


def is_reader(member: Member, reader: str) -> bool:
    """Return whether the member is the user who reads the page."""
    return member.user_id is not None and str(member.user_id) == reader


def headline(total: int, invited: int, find: str) -> str:
    if find:
        return f"{counted(total, 'member')} {'fits' if total == 1 else 'fit'} “{find}”"
    if not total:
        return "Nobody belongs to this organisation yet"
    if not invited:
        return f"{counted(total, 'member')}, all of them joined" if total > 1 else "One member, who has joined"
    if total == invited:
        return f"{counted(total, 'member')} invited, {'not' if total == 1 else 'none'} joined yet"
    return f"{total - invited:,} of {counted(total, 'member')} {'has' if total - invited == 1 else 'have'} joined"


def link_words(purpose: str, email: str) -> tuple[str, str]:
    """Return who should get the link, and what opening it does."""
    if purpose == "invitation":
        return f"Give this link to {email}", "Whoever opens it joins as them."
    effect = "Whoever opens it sets their password; their open sessions end then."
    return f"Give this link to {email}, to set a new password", effect
