"""Organisations, their namespaces with one secret key for each epoch, and the agent groups that serve them."""

from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

SLUG_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
READABLE_UNTIL = datetime(9999, 1, 1, tzinfo=UTC)
DEFAULT = "default"  # the namespace that every organisation has, and the default group of namespaces


def slug_constraint(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(slug__regex=SLUG_PATTERN), name=name)


def ending_constraint(name: str) -> models.CheckConstraint:
    """PostgreSQL can store years that Python cannot read: one such row would make every list unreadable."""
    return models.CheckConstraint(condition=Q(expires_at=None) | Q(expires_at__lt=READABLE_UNTIL), name=name)


def owner_field(max_length: int) -> Any:
    return models.CharField(
        max_length=max_length,
        default="",
        db_default="",
        blank=True,
        help_text="The label of the file that owns it, part of its revision; empty: none.",
    )


class AgentGroup(models.Model):
    """A group of agents, and of the namespaces that they serve."""

    slug = models.CharField(max_length=63, unique=True)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [slug_constraint("group_slug_is_well_formed")]

    def __str__(self) -> str:
        return self.slug


class Organisation(models.Model):
    """A customer. Deletion first sets a state; the row is deleted when no agent has any of its data."""

    class State(models.TextChoices):
        ACTIVE = "active"
        SUSPENDED = "suspended"
        DELETED = "deleted"

    slug = models.CharField(max_length=63)
    name = models.CharField(max_length=100)
    state = models.CharField(max_length=9, choices=State.choices, default=State.ACTIVE)
    owner = owner_field(63)  # an operators' file: OWNER
    revision = models.PositiveIntegerField(default=1, help_text="Of name and state; what If-Match is compared with.")
    bounds = models.JSONField(default=dict, blank=True)
    bounds_revision = models.PositiveIntegerField(default=0)
    limits = models.JSONField(default=dict, blank=True)
    limits_revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            slug_constraint("organisation_slug_is_well_formed"),
            models.UniqueConstraint(
                fields=["slug"], condition=~Q(state="deleted"), name="organisation_slug_is_unique_among_the_living"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["active", "suspended", "deleted"]), name="organisation_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state="deleted", deleted_at__isnull=False) | (~Q(state="deleted") & Q(deleted_at=None)),
                name="organisation_deleted_at_goes_with_its_state",
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def is_suspended(self) -> bool:
        return self.state == self.State.SUSPENDED


class Namespace(models.Model):
    """The unit of cache isolation."""

    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="namespaces")
    group = models.ForeignKey(AgentGroup, on_delete=models.PROTECT, related_name="namespaces")
    slug = models.CharField(max_length=63)
    name = models.CharField(max_length=100, blank=True)
    owner = owner_field(127)  # OWNER, or ORGANISATION/OWNER from its own people
    revision = models.PositiveIntegerField(default=1, help_text="Of name and group; what If-Match is compared with.")
    epoch = models.PositiveIntegerField(default=1, help_text="Advancing it purges: nothing of an older one matches.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            slug_constraint("namespace_slug_is_well_formed"),
            models.UniqueConstraint(
                fields=["organisation", "slug"],
                condition=Q(deleted_at=None),
                name="namespace_slug_is_unique_among_the_living",
            ),
            models.CheckConstraint(condition=Q(epoch__gte=1), name="namespace_epoch_is_positive"),
        ]

    def __str__(self) -> str:
        return self.slug


class NamespaceKey(models.Model):
    """The secret at the root of a namespace's hash chains, for one epoch. Past keys are erased, not just unused."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="keys")
    epoch = models.PositiveIntegerField()
    sealed = models.BinaryField(null=True, help_text="Encrypted under the master key; null once retired.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace", "epoch"], name="one_key_an_epoch"),
            models.CheckConstraint(
                condition=Q(retired_at=None, sealed__isnull=False) | Q(retired_at__isnull=False, sealed=None),
                name="a_retired_key_is_erased",
            ),
        ]
        indexes = [models.Index(fields=["retired_at"], condition=Q(retired_at__isnull=False), name="erased_keys")]

    def __str__(self) -> str:
        return f"epoch {self.epoch}"
