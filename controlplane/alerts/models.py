"""Alert rules, alerts, evaluation states and deliveries. `services.py`, `evaluating.py` and `delivery.py` write them.

`number` is the order in which rows were created, for lists; people and programs see `public_id`.
"""

import uuid
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from controlplane.alerts.definitions import COMPARISONS, SCOPES
from tenants.models import AgentGroup, Namespace, Organisation

Cascade = models.CASCADE


def _public_id() -> Any:
    return models.UUIDField(default=uuid.uuid4, unique=True, editable=False)


class AlertRule(models.Model):
    """A condition on one metric, and the webhook to notify. `built_in` is empty if a user made the rule."""

    number = models.BigAutoField(primary_key=True)
    public_id = _public_id()
    built_in = models.CharField(max_length=40, blank=True)
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=12)
    group = models.ForeignKey(AgentGroup, null=True, blank=True, on_delete=Cascade, related_name="alert_rules")
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=Cascade, related_name="alert_rules")
    namespace = models.ForeignKey(Namespace, null=True, blank=True, on_delete=Cascade, related_name="alert_rules")
    metric = models.CharField(max_length=40)
    comparison = models.CharField(max_length=5)
    threshold = models.FloatField()
    clears_at = models.FloatField()
    for_seconds = models.PositiveIntegerField()
    clear_for_seconds = models.PositiveIntegerField()
    least_prompt_tokens = models.PositiveBigIntegerField(default=0)
    enabled = models.BooleanField(default=True)
    webhook_url = models.CharField(max_length=500, blank=True)
    webhook_by_operator = models.BooleanField(default=False, help_text="Then it may lead to private addresses.")
    sealed_secret = models.BinaryField(null=True, help_text="What its webhooks are signed with; encrypted.")
    created_by = models.CharField(max_length=254)
    author_is_operator = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="It stays until all of it is told.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["built_in"], condition=~Q(built_in=""), name="built_in_rules_are_there_once"
            ),
            models.CheckConstraint(condition=Q(comparison__in=COMPARISONS), name="alert_comparison_is_known"),
            models.CheckConstraint(condition=Q(scope__in=SCOPES), name="alert_scope_is_known"),
            models.CheckConstraint(
                condition=Q(scope="fleet", group=None, organisation=None, namespace=None)
                | Q(scope="group", group__isnull=False, organisation=None, namespace=None)
                | Q(scope="organisation", group=None, organisation__isnull=False, namespace=None)
                | Q(scope="namespace", group=None, organisation__isnull=False, namespace__isnull=False),
                name="an_alert_rule_has_the_place_of_its_scope",
            ),
            models.CheckConstraint(
                condition=Q(webhook_url="") | Q(sealed_secret__isnull=False), name="a_webhook_has_a_secret"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.metric} {self.comparison} {self.threshold:g}"


class Alert(models.Model):
    """One firing of a rule for one subject, from its start to its end. It stays when its rule is deleted."""

    class State(models.TextChoices):
        FIRING = "firing"
        RESOLVED = "resolved"

    number = models.BigAutoField(primary_key=True)
    public_id = _public_id()
    rule = models.ForeignKey(AlertRule, null=True, blank=True, on_delete=models.SET_NULL, related_name="alerts")
    rule_name = models.CharField(max_length=100)
    built_in = models.CharField(max_length=40, blank=True)
    by_operator = models.BooleanField(help_text="Of an operators' rule: the rule itself is not for others to see.")
    metric = models.CharField(max_length=40)
    subject = models.CharField(max_length=140, help_text="What it is about, as states name it.")
    place = models.CharField(max_length=200, help_text="The same in words: agent-1, or acme/chat.")
    organisation = models.ForeignKey(Organisation, null=True, blank=True, on_delete=Cascade, related_name="alerts")
    namespace = models.ForeignKey(Namespace, null=True, blank=True, on_delete=Cascade, related_name="alerts")
    agent = models.CharField(max_length=63, blank=True)
    comparison = models.CharField(max_length=5)
    threshold = models.FloatField()
    value = models.FloatField(help_text="The newest that was known.")
    has_data = models.BooleanField(default=True)
    words = models.CharField(max_length=500)
    next_step = models.CharField(max_length=500)
    state = models.CharField(max_length=8, choices=State.choices, default=State.FIRING)
    since = models.DateTimeField(help_text="When the value went beyond the threshold.")
    fired_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=254, blank=True)
    acknowledged_by_operator = models.BooleanField(default=False)
    note = models.CharField(max_length=500, blank=True)
    silenced_until = models.DateTimeField(null=True, blank=True)
    is_told = models.BooleanField(default=False, help_text="Whether a webhook was to tell that it fires.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=Q(state="firing"), name="one_firing_alert_a_subject"
            ),
            models.CheckConstraint(
                condition=Q(state="firing", resolved_at=None) | Q(state="resolved", resolved_at__isnull=False),
                name="an_alert_that_ended_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation", "-number"], name="alerts_of_an_organisation"),
            models.Index(fields=["state", "-number"], name="alerts_by_state"),
            models.Index(fields=["resolved_at"], name="alerts_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_name}: {self.place}"


class AlertEvent(models.Model):
    """An entry in an alert's history."""

    class Kind(models.TextChoices):
        FIRED = "fired"
        RESOLVED = "resolved"
        ACKNOWLEDGED = "acknowledged"
        SILENCED = "silenced"
        UNSILENCED = "unsilenced"
        DELIVERED = "delivered"
        NOT_DELIVERED = "not_delivered"

    alert = models.ForeignKey(Alert, on_delete=Cascade, related_name="events")
    kind = models.CharField(max_length=13, choices=Kind.choices)
    at = models.DateTimeField()
    by = models.CharField(max_length=254, blank=True)
    by_operator = models.BooleanField(default=False)
    words = models.CharField(max_length=500, blank=True)
    value = models.FloatField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["alert", "id"], name="events_of_an_alert")]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:%F %R}"


class AlertState(models.Model):
    """The evaluation state of a rule for one subject. A row exists only while the phase is pending or firing."""

    rule = models.ForeignKey(AlertRule, on_delete=Cascade, related_name="states")
    subject = models.CharField(max_length=140)
    phase = models.CharField(max_length=7)
    since = models.DateTimeField()
    seconds = models.FloatField(null=True)
    at = models.DateTimeField()
    has_data = models.BooleanField()
    value = models.FloatField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rule", "subject"], name="one_state_a_subject"),
            models.CheckConstraint(condition=Q(phase__in=["pending", "firing"]), name="alert_phase_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} is {self.phase}"


class Delivery(models.Model):
    """A webhook notification, tried until the receiver accepts it or a day has passed."""

    class State(models.TextChoices):
        WAITING = "waiting"
        TAKEN = "taken"
        GIVEN_UP = "given_up"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False, help_text="Receivers know it by this.")
    rule = models.ForeignKey(AlertRule, on_delete=Cascade, related_name="deliveries")
    alert = models.ForeignKey(Alert, on_delete=Cascade, related_name="deliveries")
    event = models.CharField(max_length=8)
    body = models.TextField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    problem = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["rule", "created_at"], condition=Q(state="waiting"), name="deliveries_that_wait"),
            models.Index(fields=["ended_at"], name="deliveries_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.event} of {self.alert_id}: {self.state}"


class Evaluation(models.Model):
    """The newest evaluation round: a single row, from which everyone sees how old the alerts are."""

    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.at:%F %R}"
