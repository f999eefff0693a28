"""The newest result of the reconciliation, and the switch of the demo's traffic."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analytics", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Reconciliation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(help_text="Of the snapshot that was compared.")),
                ("took_seconds", models.FloatField()),
                ("compared", models.JSONField(help_text="How many pairs, by which two sides.")),
                ("differences", models.JSONField(help_text="The first of them, each with its place.")),
                ("totals", models.JSONField(help_text="Of all differences, by which two sides.")),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("pk", 1)), name="one_reconciliation")],
            },
        ),
        migrations.CreateModel(
            name="DemoTraffic",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("is_on", models.BooleanField()),
                ("changed_by", models.CharField(max_length=254)),
                ("changed_at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("pk", 1)), name="one_demo_traffic")],
            },
        ),
    ]
