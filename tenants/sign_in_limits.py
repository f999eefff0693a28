"""Limits on failed sign-in attempts. No I/O: times in, seconds to wait out. docs/security.md explains them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=15)

DEVICE_LIMIT = 5  # for one browser that its account knows, whatever others do
EMAIL_AND_ADDRESS_LIMIT = 5  # for one network at one account
ADDRESS_LIMIT = 50  # for one network at many accounts


@dataclass(frozen=True, slots=True)
class Pressure:
    """The tries left to one network at an account with at least `failures` failed attempts from all networks."""

    failures: int
    tries: int
    by_neighbourhood: bool = False


# An attack on one account reduces each network's tries but never closes the account: a network without failures always
# has a try. So the owner can sign in from elsewhere, and an attacker needs a new network for every guess.
PRESSURES = (
    Pressure(failures=100, tries=1, by_neighbourhood=True),
    Pressure(failures=30, tries=2),
    Pressure(failures=0, tries=EMAIL_AND_ADDRESS_LIMIT),
)
MOST_COUNTED = max(ADDRESS_LIMIT, *(pressure.failures for pressure in PRESSURES))  # older attempts do not matter


@dataclass(frozen=True, slots=True)
class RecentAttempts:
    """Times of failed attempts within the window by browsers unknown to the account, oldest first."""

    same_email_and_address: Sequence[datetime]
    same_email_and_neighbourhood: Sequence[datetime]
    same_email: Sequence[datetime]
    same_address: Sequence[datetime]


def seconds_to_wait(recent: RecentAttempts, *, now: datetime) -> int:
    """Return 0 if an unknown browser may try now, else the seconds until enough failures have left the window."""
    pressure = next(pressure for pressure in PRESSURES if len(recent.same_email) >= pressure.failures)
    own = recent.same_email_and_neighbourhood if pressure.by_neighbourhood else recent.same_email_and_address
    return max(_wait(own, pressure.tries, now), _wait(recent.same_address, ADDRESS_LIMIT, now))


def seconds_to_wait_known(same_device: Sequence[datetime], *, now: datetime) -> int:
    """Return the seconds to wait for a browser that the account knows: only its own failures count."""
    return _wait(same_device, DEVICE_LIMIT, now)


def _wait(attempts: Sequence[datetime], limit: int, now: datetime) -> int:
    if len(attempts) < limit:
        return 0
    leaves_window_at = attempts[-limit] + WINDOW
    return max(1, -(-(leaves_window_at - now) // timedelta(seconds=1)))
