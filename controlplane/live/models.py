"""The pulse: one row for each message that went from beat through broker and worker into this database."""

from django.db import models


class Pulse(models.Model):
    sent_at = models.DateTimeField(help_text="When beat sent the message.")
    recorded_at = models.DateTimeField(help_text="When the worker wrote this row.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sent_at"], name="pulse_is_recorded_once"),
        ]

    def __str__(self) -> str:
        return f"pulse {self.pk} after {self.milliseconds:.1f} ms"

    @property
    def seq(self) -> int:
        """Return its number in the stream of live messages: the millisecond in which it was recorded."""
        return int(self.recorded_at.timestamp() * 1000)

    @property
    def milliseconds(self) -> float:
        """Return the time from beat to database, never below zero, because two machines' clocks may differ."""
        return max(0.0, (self.recorded_at - self.sent_at).total_seconds() * 1000)
