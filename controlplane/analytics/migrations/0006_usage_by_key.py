"""What of customers' requests came with which API key."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

# As analytics_minute: its partitions of a day are made by analytics/partitions.py.
KEY_MINUTES = """
CREATE TABLE analytics_keyminute (
    series_id integer NOT NULL,
    minute timestamptz NOT NULL,
    requests bigint NOT NULL DEFAULT 0,
    prompt_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    generated_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (series_id, minute)
) PARTITION BY RANGE (minute);
CREATE INDEX analytics_keyminute_minute ON analytics_keyminute USING brin (minute) WITH (pages_per_range = 16);
"""


def _id() -> Any:
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def _added() -> list[tuple[str, Any]]:
    names = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")
    return [(name, models.BigIntegerField(db_default=0, default=0)) for name in names]


class Migration(migrations.Migration):
    dependencies = [("analytics", "0005_divergence")]

    operations = [
        migrations.CreateModel(
            name="KeyMinute",
            fields=[
                *_added(),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "series_id", "minute", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("series_id", models.IntegerField()),
                ("minute", models.DateTimeField()),
            ],
            options={"db_table": "analytics_keyminute", "managed": False},
        ),
        migrations.RunSQL(KEY_MINUTES, "DROP TABLE analytics_keyminute"),
        migrations.CreateModel(
            name="KeySeries",
            fields=[
                ("id", _id()),
                ("agent", models.CharField(blank=True, max_length=63)),
                ("organisation_id", models.BigIntegerField()),
                ("namespace_id", models.BigIntegerField()),
                ("model", models.CharField(blank=True, max_length=200)),
                (
                    "key",
                    models.CharField(blank=True, help_text="The key's id; empty: those without one.", max_length=36),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organisation_id"], name="key_series_by_organisation"),
                    models.Index(fields=["key"], name="key_series_by_key"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("namespace_id", "agent", "model", "key"), name="one_key_series_for_each"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="KeyPiece",
            fields=[
                *_added(),
                ("id", _id()),
                ("level", models.IntegerField()),
                ("start", models.DateTimeField()),
                (
                    "series",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="pieces", to="analytics.keyseries"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["level", "start"], name="key_pieces_by_start")],
                "constraints": [
                    models.UniqueConstraint(fields=("level", "series", "start"), name="one_key_piece_for_each")
                ],
            },
        ),
    ]
