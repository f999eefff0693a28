"""What is stored of usage. Rows of minutes are the truth; pieces are sums of them, for windows to be quick.

Sums are written by SQL alone (ingest.py, rolling.py). `Minute` is a table in partitions of a day; see migrations.
"""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class Series(models.Model):
    """What a row is about. `agent` empty: all agents together; `namespace_id` 0: all of the fleet together."""

    agent = models.CharField(max_length=63, blank=True)
    organisation_id = models.BigIntegerField()
    namespace_id = models.BigIntegerField()
    model = models.CharField(max_length=200, blank=True)
    kv_dtype = models.CharField(max_length=10, blank=True)
    kind = models.CharField(max_length=10)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["namespace_id", "agent", "model", "kv_dtype", "kind"], name="one_series_for_each"
            )
        ]
        indexes = [models.Index(fields=["organisation_id", "kind"], name="series_by_organisation")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.namespace_id} at {self.agent or 'all agents'}"


def _added() -> Any:
    return models.BigIntegerField(default=0, db_default=0)


class Added(models.Model):
    """columns.ADDED, and the times."""

    requests = _added()
    prompt_tokens = _added()
    cached_tokens = _added()
    generated_tokens = _added()
    retried = _added()
    failed = _added()
    cancelled = _added()
    cut_off = _added()
    missed_cold = _added()
    missed_tail = _added()
    missed_expired = _added()
    missed_evicted = _added()
    missed_quota = _added()
    missed_purged = _added()
    missed_dtype = _added()
    missed_disabled = _added()
    missed_other_agent = _added()
    expired_blocks = _added()
    evicted_blocks = _added()
    quota_blocks = _added()
    purged_blocks = _added()
    times = ArrayField(models.BigIntegerField(), default=list)

    class Meta:
        abstract = True


class Minute(Added):
    """One minute of one series of one agent. Only minutes.partition_ensure makes partitions."""

    pk = models.CompositePrimaryKey("series_id", "minute")
    series_id = models.IntegerField()
    minute = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "analytics_minute"

    def __str__(self) -> str:
        return f"{self.series_id} at {self.minute:%F %R}"


class Piece(Added):
    """The sum of a series of all agents over `level` seconds from `start`: good while `Rolled` says so."""

    level = models.IntegerField()
    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="pieces")
    start = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["level", "series", "start"], name="one_piece_for_each"),
        ]
        indexes = [models.Index(fields=["level", "start"], name="pieces_by_start")]

    def __str__(self) -> str:
        return f"{self.series_id} for {self.level} s from {self.start:%F %R}"


class KeySeries(models.Model):
    """What a row of a key is about: customers' requests alone, by the API key they came with. As in `Series`."""

    agent = models.CharField(max_length=63, blank=True)
    organisation_id = models.BigIntegerField()
    namespace_id = models.BigIntegerField()
    model = models.CharField(max_length=200, blank=True)
    key = models.CharField(max_length=36, blank=True, help_text="The key's id; empty: those without one.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace_id", "agent", "model", "key"], name="one_key_series_for_each")
        ]
        indexes = [
            models.Index(fields=["organisation_id"], name="key_series_by_organisation"),
            models.Index(fields=["key"], name="key_series_by_key"),
        ]

    def __str__(self) -> str:
        return f"{self.key or 'no key'} in {self.namespace_id} at {self.agent or 'all agents'}"


class AddedByKey(models.Model):
    """engine_agent.contracts.usage.KEY_COUNTS."""

    requests = _added()
    prompt_tokens = _added()
    cached_tokens = _added()
    generated_tokens = _added()

    class Meta:
        abstract = True


class KeyMinute(AddedByKey):
    """One minute of one series of a key, in partitions as `Minute` is."""

    pk = models.CompositePrimaryKey("series_id", "minute")
    series_id = models.IntegerField()
    minute = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "analytics_keyminute"

    def __str__(self) -> str:
        return f"{self.series_id} at {self.minute:%F %R}"


class KeyPiece(AddedByKey):
    """The same as `Piece`, and good by the same marks."""

    level = models.IntegerField()
    series = models.ForeignKey(KeySeries, on_delete=models.CASCADE, related_name="pieces")
    start = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["level", "series", "start"], name="one_key_piece_for_each")]
        indexes = [models.Index(fields=["level", "start"], name="key_pieces_by_start")]

    def __str__(self) -> str:
        return f"{self.series_id} for {self.level} s from {self.start:%F %R}"


class Rolled(models.Model):
    """The pieces of this level and start are sums of all there is. Whoever brings more rows deletes this."""

    level = models.IntegerField()
    start = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["level", "start"], name="rolled_once")]

    def __str__(self) -> str:
        return f"{self.level} s from {self.start:%F %R}"


class LedgerEntry(models.Model):
    """What an agent's reports came to, added up as they came and apart from the minutes: to be compared with those."""

    day = models.DateField()
    agent = models.CharField(max_length=63)
    boot = models.CharField(max_length=64)
    namespace_id = models.BigIntegerField()
    requests = _added()
    prompt_tokens = _added()
    cached_tokens = _added()
    generated_tokens = _added()
    upto = models.BigIntegerField(
        default=0, db_default=0, help_text="The last record of the newest report that brought requests."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "boot", "namespace_id", "day"], name="one_entry_for_each")
        ]
        indexes = [models.Index(fields=["day"], name="entries_by_day")]

    def __str__(self) -> str:
        return f"{self.agent} on {self.day}: {self.requests} requests of {self.namespace_id}"


class JournalRead(models.Model):
    """Up to which record a boot's journal is counted. It moves in the transaction that counts, so nothing is twice."""

    agent = models.CharField(max_length=63)
    boot = models.CharField(max_length=64)
    born = models.BigIntegerField(null=True, help_text="The checksum of its first record, where that is known.")
    upto = models.BigIntegerField()
    is_reborn = models.BooleanField(default=False, help_text="Another journal of that name was counted before it.")
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "boot"], name="one_journal_read_for_each")]

    def __str__(self) -> str:
        return f"{self.agent}: boot {self.boot} up to {self.upto}"


class EngineTotal(models.Model):
    """What an engine itself counted of a namespace since its boot, when it had written record `upto`."""

    agent = models.CharField(max_length=63)
    boot = models.CharField(max_length=64)
    namespace_id = models.BigIntegerField()
    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    upto = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "boot", "namespace_id"], name="one_total_for_each")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.requests} requests of {self.namespace_id}"


class RefusedRow(models.Model):
    """A row that could not be counted, and why. What it told is kept, so that people see how much it is."""

    agent = models.CharField(max_length=63)
    report = models.BigIntegerField(help_text="The report's number in the agent's spool.")
    row = models.IntegerField(help_text="Its place in the report, from 0.")
    field = models.CharField(max_length=60)
    problem = models.CharField(max_length=300)
    told = models.JSONField(default=dict, help_text="The row, as far as it can be kept.")
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["agent", "-at"], name="refused_rows_of_an_agent")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.field} {self.problem}"


class Residence(models.Model):
    """What a namespace holds on an agent now, and how many of its blocks have left since that engine's boot."""

    agent = models.CharField(max_length=63)
    namespace_id = models.BigIntegerField()
    boot = models.CharField(max_length=64)
    resident_bytes = _added()
    host_bytes = _added()
    expired_blocks = _added()
    evicted_blocks = _added()
    quota_blocks = _added()
    purged_blocks = _added()
    formats = models.JSONField(
        default=dict, db_default={}, help_text="Resident bytes by KV format; empty: that was not told."
    )
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "namespace_id"], name="one_residence_for_each")]
        indexes = [models.Index(fields=["namespace_id"], name="residences_of_a_namespace")]

    def __str__(self) -> str:
        return f"{self.resident_bytes} bytes of {self.namespace_id} on {self.agent}"


class EvictionCounter(models.Model):
    """What one namespace lost to another's requests on an agent since that boot, as was last told. Names as told."""

    agent = models.CharField(max_length=63)
    boot = models.CharField(max_length=64)
    victim = models.CharField(max_length=64)
    by = models.CharField(max_length=64)
    cause = models.CharField(max_length=10)
    blocks = _added()
    bytes = _added()
    at = models.DateTimeField(help_text="When it last rose.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "boot", "victim", "by", "cause"], name="one_eviction_counter_for_each"
            )
        ]
        indexes = [models.Index(fields=["at"], name="eviction_counters_by_time")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.victim} lost {self.blocks} blocks to {self.by}"


class Eviction(models.Model):
    """What one namespace lost to another's requests within `level` seconds from `start`, on all agents together.

    0: namespaces that engines do not tell apart. A bucket of each level has every loss.
    """

    level = models.IntegerField()
    start = models.DateTimeField()
    victim_id = models.BigIntegerField()
    by_id = models.BigIntegerField()
    cause = models.CharField(max_length=10)
    blocks = _added()
    bytes = _added()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["level", "start", "victim_id", "by_id", "cause"], name="one_eviction_bucket_for_each"
            )
        ]
        indexes = [
            models.Index(fields=["victim_id", "level", "start"], name="evictions_of_a_victim"),
            models.Index(fields=["by_id", "level", "start"], name="evictions_by_somebody"),
        ]

    def __str__(self) -> str:
        return f"{self.victim_id} lost {self.blocks} blocks to {self.by_id} from {self.start:%F %R}"


class PinHeld(models.Model):
    """What an agent holds of a pin, as it last told."""

    agent = models.CharField(max_length=63)
    pin_id = models.UUIDField()
    namespace_id = models.BigIntegerField()
    state = models.CharField(max_length=20)
    is_warming = models.BooleanField()
    wanted_tokens = models.BigIntegerField(null=True, help_text="Null: its content is not there to be counted.")
    resident_tokens = _added()
    resident_bytes = _added()
    problem = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "pin_id"], name="one_pin_held_for_each")]
        indexes = [models.Index(fields=["namespace_id"], name="pins_held_of_a_namespace")]

    def __str__(self) -> str:
        return f"{self.pin_id} on {self.agent}: {self.state}"


class PoolMinute(models.Model):
    """How full an agent's pool was in a minute: the most of what was told. `preemptions`: since the engine's boot."""

    agent = models.CharField(max_length=63)
    minute = models.DateTimeField()
    boot = models.CharField(max_length=64)
    capacity_bytes = _added()
    used_bytes = _added()
    evictable_bytes = _added()
    preemptions = _added()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "minute"], name="one_pool_minute_for_each")]
        indexes = [models.Index(fields=["minute"], name="pool_minutes_by_minute")]

    def __str__(self) -> str:
        return f"{self.agent} at {self.minute:%F %R}"


class ReuseCurve(models.Model):
    """What an engine foretells of a namespace under other TTLs and limits, as its newest `gaps` report has it."""

    agent = models.CharField(max_length=63)
    namespace_id = models.BigIntegerField()
    told = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "namespace_id"], name="one_curve_for_each")]
        indexes = [models.Index(fields=["namespace_id"], name="curves_of_a_namespace")]

    def __str__(self) -> str:
        return f"{self.namespace_id} on {self.agent}"


class Divergence(models.Model):
    """Where a namespace's prompts part, as a gateway's newest `diagnostics` report has it."""

    agent = models.CharField(max_length=63)
    namespace_id = models.BigIntegerField()
    told = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "namespace_id"], name="one_divergence_for_each")]
        indexes = [models.Index(fields=["namespace_id"], name="divergences_of_a_namespace")]

    def __str__(self) -> str:
        return f"{self.namespace_id} at {self.agent}"


class Price(models.Model):
    """What a million tokens of a model cost from a day on, in UTC. `model` empty: every model that has no own."""

    model = models.CharField(max_length=200, blank=True)
    valid_from = models.DateField()
    currency = models.CharField(max_length=3)
    input = models.DecimalField(max_digits=18, decimal_places=9, help_text="Of a million prompt tokens not cached.")
    cached_input = models.DecimalField(max_digits=18, decimal_places=9, help_text="Of a million that were cached.")
    output = models.DecimalField(max_digits=18, decimal_places=9, help_text="Of a million generated tokens.")
    is_example = models.BooleanField(default=False, help_text="Not a price that anybody asks: for demonstrations.")
    created_by = models.CharField(max_length=254, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "valid_from"], name="one_price_a_day"),
            models.CheckConstraint(
                condition=Q(input__gte=0) & Q(cached_input__gte=0) & Q(output__gte=0), name="prices_are_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model or 'every model'} from {self.valid_from}: {self.input} {self.currency}"


class PriceList(models.Model):
    """All prices together, as one thing with a revision. One row, made by whoever first writes prices."""

    revision = models.PositiveIntegerField(default=0, help_text="What If-Match is compared with.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_price_list")]

    def __str__(self) -> str:
        return f"prices, revision {self.revision}"


class Reconciliation(models.Model):
    """What the last comparison of engines, ledger, minutes and pieces found. One row: history is what alerts keep."""

    at = models.DateTimeField(help_text="Of the snapshot that was compared.")
    took_seconds = models.FloatField()
    compared = models.JSONField(help_text="How many pairs, by which two sides.")
    differences = models.JSONField(help_text="The first of them, each with its place.")
    totals = models.JSONField(help_text="Of all differences, by which two sides.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_reconciliation")]

    def __str__(self) -> str:
        return f"as of {self.at:%F %T}"


class PredictedEffect(models.Model):
    """What a published revision was to bring, as foretold when it was published, and what was measured after it.

    `before` to `error` are hit ratios; null where too little was asked to say. Revisions belong to `tenants`, which
    knows nothing of this: what is left over of those that are gone is removed with the rest (retention.py).
    """

    revision_id = models.BigIntegerField()
    organisation_id = models.BigIntegerField(help_text="0: of everybody it is in force for, together.")
    published_at = models.DateTimeField()
    at = models.DateTimeField(help_text="When it was foretold.")
    before = models.FloatField(null=True)
    after = models.FloatField(null=True)
    error = models.FloatField(null=True)
    measured_before = models.FloatField(null=True)
    measured_after = models.FloatField(null=True)
    measured_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["revision_id", "organisation_id"], name="one_effect_for_each_of_a_revision")
        ]
        indexes = [
            models.Index(fields=["published_at"], condition=Q(before__isnull=False), name="effects_to_be_measured")
        ]

    def __str__(self) -> str:
        return f"effect of revision {self.revision_id}"


class DemoTraffic(models.Model):
    """Whether the demo's traffic is wanted, as an operator last said. Without the row it is."""

    is_on = models.BooleanField()
    changed_by = models.CharField(max_length=254)
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_demo_traffic")]

    def __str__(self) -> str:
        return "on" if self.is_on else "off"
