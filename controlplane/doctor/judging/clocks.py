"""Whether clocks agree."""

from controlplane.doctor.finding import Finding, broken, note, ok, warning

APART_SECONDS = 5.0  # as an agent's clock is judged
FAR_SECONDS = 30.0  # as long as a command to an agent is good for
SET_CLOCK = "set the clock (timedatectl set-ntp true, or chronyc makestep), on the one that is wrong"


def apart(whose: str, ahead_seconds: float, *, exact: bool = True) -> Finding:
    """How far another clock is from this machine's. `exact`: not only to the second."""
    distance = abs(ahead_seconds)
    if distance <= APART_SECONDS:
        told = f"to {max(distance, 0.001):.3f} s" if exact else "to the second"
        return ok("clock", f"This machine's clock agrees with {whose} {told}")
    word = "ahead of" if ahead_seconds > 0 else "behind"
    told = f"The clock of {whose} is {_duration(distance)} {word} this machine's"
    return (broken if distance > FAR_SECONDS else warning)("clock", told, SET_CLOCK)


def monotonic(is_monotonic: bool, source: str | None) -> Finding:
    named = f" ({source})" if source else ""
    if is_monotonic:
        return ok("monotonic", f"There is a clock that nobody sets{named}: what expires does so on time")
    return note("monotonic", f"This machine's steady clock can be set back{named}")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
