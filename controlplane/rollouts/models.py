"""Rollouts, which bring a published revision to the agents, a few first. Services write, the planner reads."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.models import PolicyLevel


class Rollout(models.Model):
    """One revision of one level on its way to the agents. Those in `reached` get it; the others keep theirs.

    The others keep `base_revision`, except those in `held_revisions`: an earlier rollout, which this one supersedes,
    had brought them further.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        PAUSED = "paused"
        DONE = "done"
        ROLLED_BACK = "rolled_back"
        ABORTED = "aborted"
        SUPERSEDED = "superseded"

    OPEN = (State.RUNNING, State.PAUSED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    level = models.ForeignKey(PolicyLevel, on_delete=models.CASCADE, related_name="rollouts")
    place = models.CharField(max_length=140, help_text="In words: fleet, acme, or acme/chat.")
    revision = models.PositiveIntegerField()
    base_revision = models.PositiveIntegerField()
    strategy = models.CharField(max_length=6)
    steps = models.JSONField(help_text="Shares of the agents in percent, the last 100; or label selectors and 100.")
    bake_seconds = models.PositiveIntegerField()
    guards = models.JSONField(default=dict)
    state = models.CharField(max_length=11, choices=State.choices, default=State.RUNNING)
    step = models.PositiveIntegerField(default=0, help_text="Which of the steps it is at, from 0.")
    step_began_at = models.DateTimeField(default=timezone.now)
    baking_since = models.DateTimeField(null=True, blank=True, help_text="When the step's agents had all applied it.")
    reached = ArrayField(models.CharField(max_length=63), default=list)
    held_revisions = models.JSONField(default=dict, help_text="By agent, where it is not base_revision.")
    evidence = models.JSONField(default=dict, help_text="Counters to compare with, and what came of it.")
    why = models.CharField(max_length=500, blank=True, help_text="Why it is in that state, for people.")
    details = models.CharField(
        max_length=2000, blank=True, help_text="The same with what only operators may read; empty: there is no more."
    )
    operation_id = models.UUIDField(null=True, blank=True, help_text="The operation that waits for its agents.")
    created_by = models.CharField(max_length=254)
    author_is_operator = models.BooleanField(default=False, help_text="Then only operators decide what becomes of it.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["level"], condition=Q(state__in=["running", "paused"]), name="one_open_rollout_a_level"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["running", "paused"], finished_at=None)
                | (~Q(state__in=["running", "paused"]) & Q(finished_at__isnull=False)),
                name="a_rollout_that_ended_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at"], name="rollouts_newest_first"),
            models.Index(fields=["finished_at"], name="rollouts_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.place} revision {self.revision}"

    def say(self, why: str, details: str = "") -> None:
        """Set why it is in its state: `why` for the organisation that has the policy, `details` for operators."""
        self.why = why[:500]
        self.details = "" if details == why else details[:2000]
