"""One job before anything starts: migrations, static files, alert rules, demo seed. Run again, it changes nothing."""

from django.core.management import call_command
from django.utils import timezone

from controlplane.alerts.evaluating import built_in_rules_ensure
from controlplane.stack.config import StackConfig
from controlplane.stack.demo import demo_write


def prepare(config: StackConfig) -> None:
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    built_in_rules_ensure(now=timezone.now())
    demo_write(config)
