"""What each published revision was to bring, and what was measured after it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("analytics", "0007_evictions_and_formats")]

    operations = [
        migrations.CreateModel(
            name="PredictedEffect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("revision_id", models.BigIntegerField()),
                (
                    "organisation_id",
                    models.BigIntegerField(help_text="0: of everybody it is in force for, together."),
                ),
                ("published_at", models.DateTimeField()),
                ("at", models.DateTimeField(help_text="When it was foretold.")),
                ("before", models.FloatField(null=True)),
                ("after", models.FloatField(null=True)),
                ("error", models.FloatField(null=True)),
                ("measured_before", models.FloatField(null=True)),
                ("measured_after", models.FloatField(null=True)),
                ("measured_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("before__isnull", False)),
                        fields=["published_at"],
                        name="effects_to_be_measured",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("revision_id", "organisation_id"), name="one_effect_for_each_of_a_revision"
                    )
                ],
            },
        ),
    ]
