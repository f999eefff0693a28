"""What the sweep asks every few minutes: which operations run or ended long ago, which keys were erased long ago."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_append_only")]
    operations = [
        migrations.AddIndex(
            model_name="namespacekey",
            index=models.Index(
                condition=models.Q(("retired_at__isnull", False)), fields=["retired_at"], name="erased_keys"
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(condition=models.Q(("state", "running")), fields=["kind"], name="operations_that_run"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False)), fields=["finished_at"], name="operations_that_ended"
            ),
        ),
    ]
