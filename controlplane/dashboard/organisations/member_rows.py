"""An organisation's people as their page shows them. Pure."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.words import MAY, counted
from tenants.models import Member


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: str
    email: str
    role: str
    may: str
    state: Tag
    has_joined: bool
    since: datetime
    is_reader: bool  # whoever looks at the page


@dataclass(frozen=True, slots=True)
class ShownLink:
    """A link at the only moment it is shown."""

    title: str
    url: str
    expires_at: datetime
    what: str


def member_row(member: Member, *, reader: str) -> MemberRow:
    return MemberRow(
        id=str(member.pk),
        email=member.email,
        role=member.role,
        may=MAY[member.role],
        state=Tag("joined", "ok") if member.has_joined else Tag("invited", "info"),
        has_joined=member.has_joined,
        since=member.joined_at or member.created_at,
        is_reader=member.user_id is not None and str(member.user_id) == reader,
    )


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


def shown_link(purpose: str, email: str, url: str, expires_at: datetime) -> ShownLink:
    if purpose == "invitation":
        return ShownLink(f"Give this link to {email}", url, expires_at, "Whoever opens it joins as them.")
    what = "Whoever opens it sets their password; their open sessions end then."
    return ShownLink(f"Give this link to {email}, to set a new password", url, expires_at, what)
