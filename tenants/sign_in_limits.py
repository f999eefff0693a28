"""How many failed attempts to sign in are too many. Pure: times in, seconds to wait out. docs/security.md says why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=15)

DEVICE_LIMIT = 5  # one browser that its account knows, whatever others do
EMAIL_AND_ADDRESS_LIMIT = 5  # one network at one account
ADDRESS_LIMIT = 50  # one network at many accounts


@dataclass(frozen=True, slots=True)
class Pressure:
    """What one network may still fail at an account at which all of them together have failed so often."""

    failures: int
    tries: int
    by_neighbourhood: bool = False


# An attack on one account narrows what each network gets, and never closes the account: a network that has not failed
# yet always has a try. So an owner gets in from elsewhere, and an attacker pays with a new network for every guess.
PRESSURES = (
    Pressure(failures=100, tries=1, by_neighbourhood=True),
    Pressure(failures=30, tries=2),
    Pressure(failures=0, tries=EMAIL_AND_ADDRESS_LIMIT),
)
MOST_COUNTED = max(ADDRESS_LIMIT, *(one.failures for one in PRESSURES))  # older ones change nothing


@dataclass(frozen=True, slots=True)
class RecentAttempts:
    """When browsers that the account does not know have failed within the window, oldest first."""

    same_email_and_address: Sequence[datetime]
    same_email_and_neighbourhood: Sequence[datetime]
    same_email: Sequence[datetime]
    same_address: Sequence[datetime]


def seconds_to_wait(recent: RecentAttempts, *, now: datetime) -> int:
    """Zero when an unknown browser may try now, else seconds until enough failures have left the window."""
    pressure = next(one for one in PRESSURES if len(recent.same_email) >= one.failures)
    own = recent.same_email_and_neighbourhood if pressure.by_neighbourhood else recent.same_email_and_address
    return max(_wait(own, pressure.tries, now), _wait(recent.same_address, ADDRESS_LIMIT, now))


def seconds_to_wait_known(same_device: Sequence[datetime], *, now: datetime) -> int:
    """The same for a browser that the account knows: its own failures alone count."""
    return _wait(same_device, DEVICE_LIMIT, now)


def _wait(attempts: Sequence[datetime], limit: int, now: datetime) -> int:
    if len(attempts) < limit:
        return 0
    leaves = attempts[-limit] + WINDOW
    return max(1, -(-(leaves - now) // timedelta(seconds=1)))
