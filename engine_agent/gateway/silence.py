"""How long an engine owes an answer to a look. Pure: every passing second is told.

Seconds count only as the gateway lived through them: after a pause of its own an engine's answer may lie unread.
"""

from dataclasses import dataclass

SILENT_SECONDS = 8.0  # with the next look after its machine vanished, and the last tick, this ends within 10 s
MOST_TICK_SECONDS = 1.0  # more between two ticks was a pause of the gateway's


@dataclass(slots=True)
class Silence:
    seconds: float = 0.0
    is_looked_at: bool = False
    is_owing: bool = False  # a look, this one or one before, had no answer

    def look_begins(self) -> None:
        self.is_looked_at = self.is_owing = True

    def look_ends(self) -> None:
        self.is_looked_at = False

    def spoke(self) -> None:
        """It answered a look, or went on with an answer."""
        self.seconds, self.is_owing = 0.0, self.is_looked_at

    def passed(self, seconds: float) -> bool:
        """Whether it is given up now, and was not before."""
        if not self.is_owing or self.is_over:
            return False
        self.seconds += min(seconds, MOST_TICK_SECONDS)
        return self.is_over

    @property
    def is_over(self) -> bool:
        return self.seconds >= SILENT_SECONDS
