"""Up to which record the journal of each boot is counted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analytics", "0002_reconciliation_and_demo_traffic")]

    operations = [
        migrations.AddField(
            model_name="ledgerentry",
            name="upto",
            field=models.BigIntegerField(
                db_default=0, default=0, help_text="The last record of the newest report that brought requests."
            ),
        ),
        migrations.CreateModel(
            name="JournalRead",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("agent", models.CharField(max_length=63)),
                ("boot", models.CharField(max_length=64)),
                (
                    "born",
                    models.BigIntegerField(
                        help_text="The checksum of its first record, where that is known.", null=True
                    ),
                ),
                ("upto", models.BigIntegerField()),
                (
                    "is_reborn",
                    models.BooleanField(default=False, help_text="Another journal of that name was counted before it."),
                ),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("agent", "boot"), name="one_journal_read_for_each")],
            },
        ),
    ]
