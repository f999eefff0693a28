"""The three policy levels and their revisions, which the database refuses to change."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.models.organisations import Namespace, Organisation


class PolicyLevel(models.Model):
    """The current policy and revision number of the fleet, an organisation or a namespace."""

    class Kind(models.TextChoices):
        FLEET = "fleet"
        ORGANISATION = "organisation"
        NAMESPACE = "namespace"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    organisation = models.OneToOneField(
        Organisation, null=True, blank=True, on_delete=models.CASCADE, related_name="policy_level"
    )
    namespace = models.OneToOneField(
        Namespace, null=True, blank=True, on_delete=models.CASCADE, related_name="policy_level"
    )
    revision = models.PositiveIntegerField(default=0)
    policy = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="fleet", organisation=None, namespace=None)
                | Q(kind="organisation", organisation__isnull=False, namespace=None)
                | Q(kind="namespace", organisation=None, namespace__isnull=False),
                name="a_level_has_the_owner_of_its_kind",
            ),
            models.UniqueConstraint(fields=["kind"], condition=Q(kind="fleet"), name="there_is_one_fleet_level"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} revision {self.revision}"


class PolicyRevision(models.Model):
    """One published policy. It never changes and is deleted only with its owner."""

    level = models.ForeignKey(PolicyLevel, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    policy = models.JSONField()
    note = models.CharField(max_length=500, blank=True)
    author = models.CharField(max_length=254)
    author_is_operator = models.BooleanField()
    at = models.DateTimeField(default=timezone.now, editable=False)
    rolled_back_to = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["level", "number"], name="revision_numbers_are_unique"),
            models.CheckConstraint(condition=Q(number__gte=1), name="revision_numbers_begin_at_one"),
        ]

    def __str__(self) -> str:
        return f"revision {self.number}"
