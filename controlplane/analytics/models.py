"""Stored usage. Rows of minutes are the truth; pieces are sums of them that make windows quick to read.

Only SQL writes sums (ingest.py, rolling.py). `Minute` is partitioned by day; see the migrations.
"""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class Series(models.Model):
    """The subject of a row. An empty `agent` stands for all agents together, `namespace_id` 0 for the whole fleet."""

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
    """The summed columns: `columns.ADDED`, and the latency histogram `times`."""

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
    """One minute of one series of one agent. Only `partitions_ensure` creates its partitions."""

    pk = models.CompositePrimaryKey("series_id", "minute")
    series_id = models.IntegerField()
    minute = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "analytics_minute"

    def __str__(self) -> str:
        return f"{self.series_id} at {self.minute:%F %R}"


class Piece(Added):
    """The sum of a series over all agents, for `level` seconds from `start`. Valid while a `Rolled` row marks it."""

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
    """The subject of a row by API key: customers' requests that came with this key. Otherwise like `Series`."""

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
    """The summed columns by API key: `KEY_COUNTS` of engine_agent.contracts.usage."""

    requests = _added()
    prompt_tokens = _added()
    cached_tokens = _added()
    generated_tokens = _added()

    class Meta:
        abstract = True


class KeyMinute(AddedByKey):
    """One minute of one series of a key, partitioned like `Minute`."""

    pk = models.CompositePrimaryKey("series_id", "minute")
    series_id = models.IntegerField()
    minute = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "analytics_keyminute"

    def __str__(self) -> str:
        return f"{self.series_id} at {self.minute:%F %R}"


class KeyPiece(AddedByKey):
    """The sum of a key's series, like `Piece` and valid by the same marks."""

    level = models.IntegerField()
    series = models.ForeignKey(KeySeries, on_delete=models.CASCADE, related_name="pieces")
    start = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["level", "series", "start"], name="one_key_piece_for_each")]
        indexes = [models.Index(fields=["level", "start"], name="key_pieces_by_start")]

    def __str__(self) -> str:
        return f"{self.series_id} for {self.level} s from {self.start:%F %R}"


class Rolled(models.Model):
    """A mark that all pieces of this level and start are complete sums. A transaction that adds rows deletes it."""

    level = models.IntegerField()
    start = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["level", "start"], name="rolled_once")]

    def __str__(self) -> str:
        return f"{self.level} s from {self.start:%F %R}"


class LedgerEntry(models.Model):
    """An agent's reported counts, summed on arrival and separately from the minutes, for comparison with them."""

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
    """The last counted record of a boot's journal. The transaction that counts moves it, so nothing counts twice."""

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
    """An engine's own count of a namespace since its boot, at the time it had written record `upto`."""

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
    """A row that could not be counted, and why. The row itself is kept, so that people see how much is missing."""

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
    """A namespace's cache use on an agent now, and how many of its blocks have left since that engine's boot."""

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
    """A namespace's losses to another's requests on an agent since that boot. Values and names as last reported."""

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
    """A namespace's losses to another's requests on all agents, in `level` seconds from `start`.

    Id 0 stands for namespaces that engines do not distinguish. Each loss is in one bucket of every level.
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
    """The state of a pin on an agent, as last reported."""

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
    """The highest reported use of an agent's pool in a minute. `preemptions` counts since the engine's boot."""

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
    """An engine's forecast for a namespace under other TTLs and limits, from its newest `gaps` report."""

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
    """The places where a namespace's prompts diverge, from a gateway's newest `diagnostics` report."""

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
    """The price of a million tokens of a model from a UTC day on. Empty `model`: all models without their own price."""

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
    """The revision of all prices together. A single row, created by the first write."""

    revision = models.PositiveIntegerField(default=0, help_text="What If-Match is compared with.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_price_list")]

    def __str__(self) -> str:
        return f"prices, revision {self.revision}"


class Reconciliation(models.Model):
    """The last comparison of engines, ledger, minutes and pieces. A single row; the alerts keep the history."""

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
    """A published revision's effect: forecast at publication, and measured afterwards.

    `before` to `error` are hit ratios, null if there was too little traffic to forecast. Revisions belong to `tenants`,
    which does not know this table; retention.py deletes the rows of revisions that are gone.
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
    """The operators' switch for the demo's traffic. Without a row it is on."""

    is_on = models.BooleanField()
    changed_by = models.CharField(max_length=254)
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_demo_traffic")]

    def __str__(self) -> str:
        return "on" if self.is_on else "off"
