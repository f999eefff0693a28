"""Where prompts part, as gateways' samples have it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analytics", "0004_other_agent")]

    operations = [
        migrations.CreateModel(
            name="Divergence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("agent", models.CharField(max_length=63)),
                ("namespace_id", models.BigIntegerField()),
                ("told", models.JSONField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["namespace_id"], name="divergences_of_a_namespace")],
                "constraints": [
                    models.UniqueConstraint(fields=("agent", "namespace_id"), name="one_divergence_for_each")
                ],
            },
        ),
    ]
