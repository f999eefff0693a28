"""Models of agents, join tokens, operation steps, quality results and isolation probes. Only services write them."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.models import AgentGroup, Operation
from tenants.models.organisations import SLUG_PATTERN, ending_constraint

KINDS = ("engine", "gateway")


class JoinToken(models.Model):
    """A token with which agents enrol, limited in time and uses. Only the secret's keyed hash is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, help_text="The secret's beginning, by which people recognise it.")
    hash = models.BinaryField(max_length=32, unique=True)
    kind = models.CharField(max_length=7, null=True, blank=True, help_text="Null: any kind.")  # noqa: DJ001
    group = models.ForeignKey(AgentGroup, on_delete=models.CASCADE, related_name="join_tokens")
    agent = models.CharField(
        max_length=63, blank=True, help_text="Only the agent of this name, also if there is one: it is taken over."
    )
    uses_left = models.PositiveIntegerField(null=True, blank=True, help_text="Null: any number.")
    uses = models.PositiveIntegerField(default=0)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind=None) | Q(kind__in=KINDS), name="join_token_kind_is_known"),
            ending_constraint("join_token_end_is_readable"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Agent(models.Model):
    """An engine or a gateway with its sidecar: its desired state, its applied state and its last heartbeat."""

    id = models.CharField(primary_key=True, max_length=63)
    kind = models.CharField(max_length=7)
    group = models.ForeignKey(AgentGroup, on_delete=models.PROTECT, related_name="agents")
    labels = models.JSONField(default=dict, blank=True)
    about = models.JSONField(default=dict, blank=True, help_text="What it is, in its own words.")
    formats_once = models.JSONField(default=list, blank=True, help_text="KV formats it has ever said it can do.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    enrolled_at = models.DateTimeField(default=timezone.now)
    enrolled_by = models.CharField(max_length=100, blank=True, help_text="The join token's name.")
    revoked_at = models.DateTimeField(null=True, blank=True)
    is_draining = models.BooleanField(default=False)

    # Its credentials. The others are derived from the signing key, its id and this number.
    key_number = models.PositiveIntegerField(default=1)
    token_hash = models.BinaryField(max_length=32, unique=True)
    next_token_hash = models.BinaryField(max_length=32, null=True, unique=True, help_text="Given out, not used yet.")

    # Its desired state. The generation increases with every new hash, so that an older state never counts as newer.
    desired_hash = models.CharField(max_length=64, blank=True)
    desired_generation = models.PositiveBigIntegerField(default=0)
    desired_at = models.DateTimeField(null=True, blank=True)

    # Its applied state, as it acknowledged it.
    applied_hash = models.CharField(max_length=64, blank=True)
    applied_generation = models.PositiveBigIntegerField(default=0)
    applied_at = models.DateTimeField(null=True, blank=True)
    rejected_hash = models.CharField(max_length=64, blank=True)
    rejected_reason = models.CharField(max_length=400, blank=True)
    rejected_at = models.DateTimeField(null=True, blank=True)

    # Its last heartbeat.
    heartbeat = models.JSONField(default=dict, blank=True)
    heartbeat_boot = models.CharField(max_length=64, blank=True)
    heartbeat_sequence = models.PositiveBigIntegerField(default=0)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    clock_skew_seconds = models.FloatField(default=0.0)

    # The offset of its spool: all reports up to this number were received, each exactly once.
    spool = models.CharField(max_length=64, blank=True)
    spool_number = models.PositiveBigIntegerField(default=0)
    past_spools = models.JSONField(default=list, blank=True, help_text="Those before it, newest first: [id, number].")
    lost_reports = models.PositiveBigIntegerField(default=0)

    # Progress of sending it the desired state.
    push_generation = models.PositiveBigIntegerField(default=0)
    push_attempts = models.PositiveIntegerField(default=0)
    push_retry_at = models.DateTimeField(null=True, blank=True)

    # Its conditions by kind, each with start time and reason.
    conditions = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=KINDS), name="agent_kind_is_known"),
            models.CheckConstraint(condition=Q(id__regex=SLUG_PATTERN), name="agent_id_is_well_formed"),
        ]

    def __str__(self) -> str:
        return self.id


class AgentGeneration(models.Model):
    """The desired hash of an agent at one generation. An acknowledgement counts only if it matches."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="generations")
    number = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="generations_are_numbered_once")]

    def __str__(self) -> str:
        return f"{self.agent_id} generation {self.number}"


class OperationStep(models.Model):
    """One agent's part of an operation: its action, the progress of sending it, and its receipt."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DONE = "done"
        FAILED = "failed"

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="steps")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="steps")
    # `state` ends when the agent acknowledges `generation`. Any other action is a command and ends with its receipt.
    deed = models.CharField(max_length=20)
    arguments = models.JSONField(default=dict, blank=True)
    generation = models.PositiveBigIntegerField(null=True, help_text="Of the state that holds it; null: not planned.")
    state = models.CharField(max_length=7, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)
    deadline = models.DateTimeField(null=True, blank=True)
    receipt = models.JSONField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "agent"], name="one_step_an_agent"),
            models.CheckConstraint(
                condition=Q(state="waiting", done_at=None) | (~Q(state="waiting") & Q(done_at__isnull=False)),
                name="a_step_that_ended_says_when",
            ),
        ]
        indexes = [models.Index(fields=["agent"], condition=Q(state="waiting"), name="steps_that_wait")]

    def __str__(self) -> str:
        return f"{self.deed} at {self.agent_id}"


class PurgeProof(models.Model):
    """An engine's report that no block of an older epoch is left, kept until the matching acknowledgement arrives."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="purge_proofs")
    namespace_id = models.BigIntegerField()
    epoch = models.PositiveBigIntegerField()
    blocks = models.PositiveBigIntegerField()
    bytes = models.PositiveBigIntegerField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["agent", "namespace_id"], name="proofs_by_namespace")]

    def __str__(self) -> str:
        return f"{self.blocks} blocks of {self.namespace_id}"


class QualityResult(models.Model):
    """A verdict on whether a format may carry traffic, for a model at a revision and a backend. The newest counts."""

    class Verdict(models.TextChoices):
        PASSED = "passed"
        FAILED = "failed"
        UNRESOLVED = "unresolved"
        OVERRIDDEN = "overridden"  # an operator allows it without a passing result

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    model = models.CharField(max_length=200)
    revision = models.CharField(max_length=100)
    kv_dtype = models.CharField(max_length=10)
    backend = models.CharField(max_length=20)
    verdict = models.CharField(max_length=10, choices=Verdict.choices)
    figures = models.JSONField(default=dict, blank=True)
    note = models.CharField(max_length=500, blank=True)
    created_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [
            models.Index(fields=["model", "revision", "backend", "kv_dtype", "-created_at"], name="newest_verdict")
        ]

    def __str__(self) -> str:
        return f"{self.kv_dtype} on {self.model}: {self.verdict}"


class RefusedCommands(models.Model):
    """The number of commands that an agent refused, by reason. Another process may be writing into its queue."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="refused")
    reason = models.CharField(max_length=12)
    count = models.PositiveBigIntegerField(default=0)
    last_what = models.CharField(max_length=400, blank=True)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "reason"], name="one_count_a_reason")]

    def __str__(self) -> str:
        return f"{self.count} {self.reason}"


class CanaryMinute(models.Model):
    """One minute's rounds of isolation probes at an agent, counted by outcome over all gateways."""

    agent = models.CharField(max_length=63)
    minute = models.DateTimeField()
    isolated = models.BigIntegerField(default=0, db_default=0)
    leaked = models.BigIntegerField(default=0, db_default=0)
    unkept = models.BigIntegerField(default=0, db_default=0)
    failed = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "minute"], name="canary_minutes_are_one_each")]

    def __str__(self) -> str:
        return f"probes at {self.agent}, {self.minute:%F %R}"


class CanaryStanding(models.Model):
    """The current result of one gateway's probes at an agent: its last failure, and the timing."""

    gateway = models.CharField(max_length=63)
    agent = models.CharField(max_length=63)
    at = models.DateTimeField()
    failure = models.CharField(max_length=300, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    pairs = models.PositiveIntegerField(default=0)
    auc = models.FloatField(null=True, blank=True)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["gateway", "agent"], name="canary_standings_are_one_each")]

    def __str__(self) -> str:
        return f"{self.gateway} of {self.agent}"
