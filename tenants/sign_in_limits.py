"""How many failed attempts are too many. Pure: counts in, seconds to wait out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class RecentAttempts:
    """When attempts were made within the window, oldest first."""

    same_email_and_address: Sequence[datetime]
    same_email: Sequence[datetime]
    same_address: Sequence[datetime]


# One person mistyping; one account tried from many places; one place trying many accounts.
EMAIL_AND_ADDRESS_LIMIT = 5
EMAIL_LIMIT = 30
ADDRESS_LIMIT = 50


def seconds_to_wait(recent: RecentAttempts, *, now: datetime) -> int:
    """Zero when another attempt may be made now, else seconds until enough old ones have left the window."""
    return max(
        _wait(recent.same_email_and_address, EMAIL_AND_ADDRESS_LIMIT, now),
        _wait(recent.same_email, EMAIL_LIMIT, now),
        _wait(recent.same_address, ADDRESS_LIMIT, now),
    )


def _wait(attempts: Sequence[datetime], limit: int, now: datetime) -> int:
    if len(attempts) < limit:
        return 0
    leaves = attempts[-limit] + WINDOW
    return max(1, -(-(leaves - now) // timedelta(seconds=1)))
