"""Measures how long an engine has not answered a health check. Pure: callers report every second that passes.

Only seconds in which the gateway ran count: after a pause of the gateway, an engine's answer may still be unread.
"""

from dataclasses import dataclass

SILENT_SECONDS = 8.0  # plus the next health check after a machine vanished and the last tick: at most 10 s
MOST_TICK_SECONDS = 1.0  # a longer tick is a pause of the gateway


@dataclass(slots=True)
class Silence:
    seconds: float = 0.0
    is_looked_at: bool = False
    is_owing: bool = False  # a health check, this or an earlier one, has no answer

    def look_begins(self) -> None:
        self.is_looked_at = self.is_owing = True

    def look_ends(self) -> None:
        self.is_looked_at = False

    def spoke(self) -> None:
        """Record that the engine answered a health check, or sent more of an answer."""
        self.seconds, self.is_owing = 0.0, self.is_looked_at

    def passed(self, seconds: float) -> bool:
        """Add the seconds, and return whether they make the engine count as silent."""
        if not self.is_owing or self.is_over:
            return False
        self.seconds += min(seconds, MOST_TICK_SECONDS)
        return self.is_over

    @property
    def is_over(self) -> bool:
        return self.seconds >= SILENT_SECONDS
