"""What was missed because another agent had it."""

from django.db import migrations, models

COLUMN = "missed_other_agent"


def _added() -> models.BigIntegerField:
    return models.BigIntegerField(db_default=0, default=0)


class Migration(migrations.Migration):
    dependencies = [("analytics", "0003_journalread")]

    operations = [
        migrations.AddField(model_name="piece", name=COLUMN, field=_added()),
        migrations.RunSQL(  # partitions get it with their table; nothing is rewritten for a constant
            sql=f"ALTER TABLE analytics_minute ADD COLUMN {COLUMN} bigint NOT NULL DEFAULT 0",
            reverse_sql=f"ALTER TABLE analytics_minute DROP COLUMN {COLUMN}",
            state_operations=[migrations.AddField(model_name="minute", name=COLUMN, field=_added())],
        ),
    ]
