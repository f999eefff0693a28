"""The job that runs before the services: logins, migrations, static files, alert rules, demo seed. Can be repeated."""

import os

from controlplane.database.roles import SUPERUSER_URL, application_grant, owner_instead, roles_make_of
from controlplane.stack.config import read_stack_config
from controlplane.stack.demo_home import demo_home


def prepare() -> None:
    """Prepare the database, as its owner where the stack runs the database."""
    if os.environ.get(SUPERUSER_URL):
        roles_make_of(os.environ)
    application = owner_instead(os.environ)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")

    import django

    django.setup()  # settings are read once: from here on this process is the owner
    from django.core.management import call_command
    from django.utils import timezone

    from controlplane.alerts.evaluating import built_in_rules_ensure
    from controlplane.demo.seed import demo_write

    call_command("migrate", interactive=False, verbosity=0)
    application_grant(application)
    call_command("collectstatic", interactive=False, verbosity=0)
    built_in_rules_ensure(now=timezone.now())
    demo_write(demo_home(read_stack_config(os.environ)))
