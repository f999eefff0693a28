"""Requests to the caches besides policy: pins, and operations that agents confirm with receipts."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.models.organisations import Namespace, Organisation, ending_constraint


class Pin(models.Model):
    """A prefix that must stay cached. Its content is write-only: encrypted here, decrypted only for agents."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="pins")
    name = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    content_kind = models.CharField(max_length=9)
    sealed_content = models.BinaryField()
    content_bytes = models.PositiveIntegerField()
    expires_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="pin_names_are_unique"),
            ending_constraint("pin_end_is_readable"),
            models.CheckConstraint(
                condition=Q(content_kind__in=["messages", "prompt", "token_ids"]), name="pin_content_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Operation(models.Model):
    """An action that agents must prove. It is done when every agent concerned has sent its receipt."""

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=20)
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=models.SET_NULL)
    namespace = models.ForeignKey(Namespace, null=True, blank=True, on_delete=models.SET_NULL)
    scope = models.CharField(max_length=140, help_text="What it is about, in words: acme, or acme/chat.")
    state = models.CharField(max_length=7, choices=State.choices)
    awaited_agents = models.JSONField(default=list, blank=True)
    receipts = models.JSONField(default=list, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state="running", finished_at=None)
                | (Q(state__in=["done", "failed"]) & Q(finished_at__isnull=False)),
                name="an_operation_that_ended_says_when",
            )
        ]
        # For the sweep that reads running and long finished operations every few minutes.
        indexes = [
            models.Index(fields=["kind"], condition=Q(state="running"), name="operations_that_run"),
            models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="operations_that_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.scope}"
