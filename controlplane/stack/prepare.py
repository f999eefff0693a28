"""One job before anything starts: migrations, static files, demo seed. Run again, it changes nothing."""

from django.core.management import call_command

from controlplane.stack.config import StackConfig
from controlplane.stack.demo import demo_write


def prepare(config: StackConfig) -> None:
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    demo_write(config)
