"""The audit trail with its head, and stored answers, so that a repeated request is not carried out twice."""

from django.db import models
from django.utils import timezone


class AuditHead(models.Model):
    """One row with the last record's number and hash. Locking it serialises writers, and it reveals a lost tail."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="there_is_one_audit_head")]

    def __str__(self) -> str:
        return f"record {self.seq}"


class AuditRecord(models.Model):
    """One action. The database refuses to change or delete the record, and its hash covers the previous record."""

    seq = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=14)
    actor_id = models.CharField(max_length=64)
    actor_name = models.CharField(max_length=254)
    # Ids and names instead of foreign keys, because the trail outlives the objects.
    organisation_id = models.BigIntegerField(null=True, blank=True)
    verb = models.CharField(max_length=40)
    target = models.CharField(max_length=400)
    # Text, not jsonb: the hash covers these exact bytes, and jsonb would rewrite them.
    before = models.TextField(help_text="Canonical JSON.")
    after = models.TextField(help_text="Canonical JSON.")
    address = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    hash = models.BinaryField(max_length=32)

    class Meta:
        indexes = [models.Index(fields=["organisation_id", "seq"], name="audit_by_organisation")]

    def __str__(self) -> str:
        return f"{self.seq} {self.verb} {self.target}"


class IdempotentRequest(models.Model):
    """The answer to one Idempotency-Key of one caller, without secrets. Encrypted, because it quotes requests."""

    caller = models.CharField(max_length=64)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField(null=True)
    sealed_answer = models.BinaryField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["caller", "key"], name="an_idempotency_key_is_used_once")]

    def __str__(self) -> str:
        return f"{self.caller} {self.key}"
