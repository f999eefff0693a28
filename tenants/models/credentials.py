"""Bearer tokens: organisations' API keys and operators' tokens. Only a keyed hash of the secret is stored."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.models.organisations import Organisation, ending_constraint
from tenants.models.people import User

SCOPES = ("infer", "stats:read", "policy:read", "policy:write", "admin")


def scopes_constraint(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(scopes__contained_by=list(SCOPES)) & Q(scopes__len__gte=1), name=name)


class Credential(models.Model):
    """The fields that both kinds share."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, help_text="The secret's beginning, by which people recognise it.")
    hash = models.BinaryField(max_length=32, unique=True)
    scopes = ArrayField(models.CharField(max_length=12))
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class ApiKey(Credential):
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="api_keys")
    namespace_ids = ArrayField(
        models.BigIntegerField(),
        null=True,
        blank=True,
        help_text="What it is bound to; null: everything. Ids, so that a deleted namespace never widens it.",
    )

    class Meta:
        constraints = [scopes_constraint("key_scopes_are_known"), ending_constraint("key_end_is_readable")]
        indexes = [models.Index(fields=["organisation", "id"], name="keys_by_organisation")]


class OperatorToken(Credential):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="operator_tokens")

    class Meta:
        constraints = [
            scopes_constraint("operator_token_scopes_are_known"),
            ending_constraint("operator_token_end_is_readable"),
        ]
