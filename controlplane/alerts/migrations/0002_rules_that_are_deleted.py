"""A rule that is deleted stays until what it has to tell is told."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="alertrule",
            name="deleted_at",
            field=models.DateTimeField(blank=True, help_text="It stays until all of it is told.", null=True),
        ),
    ]
