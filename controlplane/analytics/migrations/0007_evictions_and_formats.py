"""Who evicts whom, what caches hold by KV format, and what agents hold of pins."""

from django.db import migrations, models


def _id() -> tuple[str, models.BigAutoField]:
    return ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))


def _added() -> models.BigIntegerField:
    return models.BigIntegerField(db_default=0, default=0)


class Migration(migrations.Migration):
    dependencies = [("analytics", "0006_usage_by_key")]

    operations = [
        migrations.AddField(
            model_name="residence",
            name="formats",
            field=models.JSONField(
                default=dict, db_default={}, help_text="Resident bytes by KV format; empty: that was not told."
            ),
        ),
        migrations.CreateModel(
            name="EvictionCounter",
            fields=[
                _id(),
                ("agent", models.CharField(max_length=63)),
                ("boot", models.CharField(max_length=64)),
                ("victim", models.CharField(max_length=64)),
                ("by", models.CharField(max_length=64)),
                ("cause", models.CharField(max_length=10)),
                ("blocks", _added()),
                ("bytes", _added()),
                ("at", models.DateTimeField(help_text="When it last rose.")),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="eviction_counters_by_time")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("agent", "boot", "victim", "by", "cause"), name="one_eviction_counter_for_each"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Eviction",
            fields=[
                _id(),
                ("level", models.IntegerField()),
                ("start", models.DateTimeField()),
                ("victim_id", models.BigIntegerField()),
                ("by_id", models.BigIntegerField()),
                ("cause", models.CharField(max_length=10)),
                ("blocks", _added()),
                ("bytes", _added()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["victim_id", "level", "start"], name="evictions_of_a_victim"),
                    models.Index(fields=["by_id", "level", "start"], name="evictions_by_somebody"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("level", "start", "victim_id", "by_id", "cause"), name="one_eviction_bucket_for_each"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PinHeld",
            fields=[
                _id(),
                ("agent", models.CharField(max_length=63)),
                ("pin_id", models.UUIDField()),
                ("namespace_id", models.BigIntegerField()),
                ("state", models.CharField(max_length=20)),
                ("is_warming", models.BooleanField()),
                (
                    "wanted_tokens",
                    models.BigIntegerField(null=True, help_text="Null: its content is not there to be counted."),
                ),
                ("resident_tokens", _added()),
                ("resident_bytes", _added()),
                ("problem", models.CharField(blank=True, max_length=200)),
                ("at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["namespace_id"], name="pins_held_of_a_namespace")],
                "constraints": [models.UniqueConstraint(fields=("agent", "pin_id"), name="one_pin_held_for_each")],
            },
        ),
    ]
